"""Graders of exercises that several frameworks share, a module for each lesson."""
