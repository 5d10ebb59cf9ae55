"""The book that comes with the package is whole, and the same everywhere."""

import hashlib

from d2l_gpu import torch as d2l

# Computed when the file was made from Brotli's alice29.txt, whose SHA-256 is
# 7467306ee0feed4971260f3c87421154a05be571d944e9cb021a5713700c38f0.
SHA256 = "f76b5aff5e51365fa2c5f8ccf70ffc26c68def65860d052ee2ed25d31b00fa47"


def test_the_book_is_unchanged():
    text = d2l.load_alice()
    assert hashlib.sha256(text.encode("ascii")).hexdigest() == SHA256


def test_the_book_is_in_the_public_domain_without_conditions():
    text = d2l.load_alice()
    assert "Lewis Carroll" in text[:200]
    assert "gutenberg" not in text.lower()
    assert "license" not in text.lower() and "licence" not in text.lower()


def test_lines_end_alike_on_every_system():
    assert "\r" not in d2l.load_alice()
