"""What maintainers run: building the notebooks and checking their editions."""
