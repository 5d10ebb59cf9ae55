"""How long programs take, measured or simulated.

* ``timer``: ``Timer``, which waits for the devices before it reads a clock.
* ``bench``: ``bench``, programs compared with each other.
* ``arrivals``: finds programs that read a copy before it has arrived.
* ``scaling``: ``simulate_step``, a training step on any number of simulated GPUs.
"""
