"""Tests of the project; what several of them use is in ``helpers``."""
