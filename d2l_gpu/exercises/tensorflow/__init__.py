"""Graders for the TensorFlow exercises, one module per lesson."""
