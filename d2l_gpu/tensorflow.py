"""The helper of the lessons with TensorFlow: to be written."""

FRAMEWORK = {
    "order": 2,
    "tag": "tensorflow",
    "title": "TensorFlow",
    "module": "tensorflow",
}
