"""Graders that several frameworks share, one module per lesson."""
