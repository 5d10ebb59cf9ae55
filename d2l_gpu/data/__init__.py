"""Data for the lessons of every framework: what there is, and how it is downloaded.

* ``digits``: scikit-learn's handwritten digits, which need no network.
* ``sources``: the addresses and checksums of what is downloaded.
* ``download``: downloading: mirrors, checksums, a cache that holds whole files only.
"""
