"""The helper of the lessons with JAX: to be written."""

FRAMEWORK = {
    "order": 3,
    "tag": "jax",
    "title": "JAX",
    "module": "jax",
}
