"""Planted faults: check that the tests catch mistakes a good programmer could make.

    python -m tools.faults                 plant each fault in turn
    python -m tools.faults NAME …          plant these faults
    python -m tools.faults --list          list the faults and what they do

The faults are listed in the TOML files of this folder. Each is planted in a copy of the
project, never in the working tree, and the tests that should catch it run there.
"""
