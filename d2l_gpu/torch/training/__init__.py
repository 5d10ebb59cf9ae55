"""Training a network on one device.

* ``trainer``: ``Module``, ``DataModule`` and ``Trainer``, as in the book.
* ``nets``: the networks that the lessons train.
* ``evaluation``: accuracy, counted on the device.
* ``schedule``: the learning rate over time.
* ``forms``: channels last and bfloat16, timed on the machine at hand.
* ``checkpoints``: resuming after a crash.
* ``parameter_files``: saving and loading parameters.
"""
