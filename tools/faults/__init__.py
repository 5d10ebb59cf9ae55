"""Planted faults: mistakes that a good programmer could make, and tests that notice.

    python -m tools.faults                 plant each, one after the other
    python -m tools.faults NAME …          plant these
    python -m tools.faults --list          say which there are, and what they do

The faults stand in the TOML files of this folder. Each is planted into a copy of the
project, never into the working tree, and the tests that concern its file are run there.
"""
