"""Images and a text to train on.

* ``images``: Fashion-MNIST and the handwritten digits.
* ``batches``: minibatches of a data set held in a single tensor.
* ``photographs``: files that a loader has to decode and augment.
* ``books``: a book, for language models.
"""
