"""Graders for the MXNet exercises, one module per lesson."""
