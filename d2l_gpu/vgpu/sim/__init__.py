"""The simulation by itself: devices, their memory and their clock, without PyTorch.

It needs Python's standard library only and reads nothing from the operating system,
no real clock and no file, so it runs wherever Python does, in a browser too.

* ``catalogue``: the GPUs and links that are known, every figure with its source.
* ``clock``: when the host issues work, and when devices and links do it.
* ``commands``: what the clock is told apart from kernels: copies, collectives, waiting.
* ``machine``: the devices' memory, the log of copies, and the seams to the clock.
* ``report``: what every device and every link did, as tables.
* ``timeline``: a drawing of what was done when.
* ``table``, ``units``: tables and quantities as people read them.
"""
