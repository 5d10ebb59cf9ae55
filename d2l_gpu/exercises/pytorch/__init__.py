"""Graders for the PyTorch exercises, one module per lesson."""
