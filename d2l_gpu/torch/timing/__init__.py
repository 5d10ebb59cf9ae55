"""How long programs take, measured or simulated.

* ``timer``: ``Timer``, which waits for the devices before it reads a clock.
* ``bench``: ``bench``, which compares programs.
* ``race``: ``race``, a product of matrices on this machine and on simulated ones.
* ``arrivals``: finds programs that read a copy before it has arrived.
* ``scaling``: ``simulate_step``, a training step on any number of simulated GPUs.
"""
