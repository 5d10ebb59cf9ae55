"""Graders of the exercises with JAX, a module for each lesson."""
