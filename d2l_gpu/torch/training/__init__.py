"""Training a network on one device.

* ``trainer``: ``Module``, ``DataModule`` and ``Trainer``, as in the book.
* ``nets``: the networks that the lessons train.
* ``evaluation``: accuracy, counted on the device.
* ``schedule``: the learning rate over time.
* ``forms``: channels last and bfloat16, tried out on the machine at hand.
* ``checkpoints``: going on after a crash; ``parameter_files``: parameters in files.
"""
