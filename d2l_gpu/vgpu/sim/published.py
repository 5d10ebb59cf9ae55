"""Errors on published runs; from benchmarks/published.py --tables."""

# Work, type of number, runs, and the median and the largest of the relative errors.
ERRORS = (
    ("convolutions", "fp32", 6, 0.132, 0.437),
    ("convolutions", "fp16", 8, 0.103, 0.299),
    ("convolutions", "tf32", 4, 0.115, 0.14),
    ("products", "fp32", 6, 0.107, 0.207),
    ("products", "fp16", 10, 0.028, 0.279),
    ("products", "tf32", 2, 0.128, 0.134),
    ("products", "bf16", 3, 0.123, 0.127),
)
