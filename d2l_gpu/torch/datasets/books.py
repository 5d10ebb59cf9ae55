"""A book to train a language model on, which comes with the package."""

from importlib import resources


def load_alice() -> str:
    """Return *Alice's Adventures in Wonderland*, about 148 kB of ASCII, as a string.

    No download is needed.

    Source: Lewis Carroll, 1865, in the public domain. The file is ``alice29.txt`` of
        the Canterbury Corpus (R. Arnold and T. Bell, A corpus for the evaluation of
        lossless compression algorithms, 1997), as distributed in the source of Brotli
        1.2.1 on PyPI, without the line that names its edition, without empty lines at
        the beginning, and with Unix line ends.
    """
    file = resources.files(__package__) / "alice.txt"
    # Newlines stay as they are on every system.
    return file.read_bytes().decode("ascii")
