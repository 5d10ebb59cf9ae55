"""Graders of the exercises with MXNet, a module for each lesson."""
