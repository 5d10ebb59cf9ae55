"""Graders for the JAX exercises, one module per lesson."""
