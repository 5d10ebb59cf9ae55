"""Images to train on.

* ``images``: Fashion-MNIST and the handwritten digits.
* ``batches``: minibatches of a data set that is kept in one tensor.
"""
