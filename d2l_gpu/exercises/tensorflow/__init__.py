"""Graders of the exercises with TensorFlow, a module for each lesson."""
