"""Graders of the exercises with PyTorch, a module for each lesson."""
