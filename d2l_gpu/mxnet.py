"""The helper of the lessons with MXNet: to be written."""

FRAMEWORK = {
    "order": 4,
    "tag": "mxnet",
    "title": "MXNet",
    "module": "mxnet",
    "hosted": False,
}
