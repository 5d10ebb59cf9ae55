"""Data for the lessons of every framework: what there is, and how it's downloaded.

* ``digits``: scikit-learn's handwritten digits, which need no download.
* ``sources``: the addresses and checksums of the files to download.
* ``download``: downloads with mirrors, checksums and a cache of complete files only.
"""
