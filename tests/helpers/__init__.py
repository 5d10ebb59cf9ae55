"""What tests of several modules use; ``conftest.py`` has the fixtures."""
