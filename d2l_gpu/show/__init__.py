"""What readers look at, with one style for all figures, tables and progress bars.

* ``style``: colours, line styles, markers and sizes of all figures.
* ``live``: figures that grow while a cell runs, in a single Jupyter display.
* ``training_curves``: ``ProgressBoard`` and ``Animator``, curves of a training run.
* ``text_curves``: the same curves as lines of text, outside Jupyter.
* ``plots``: ``plot`` and ``roofline``, figures of finished results.
* ``progress``: the progress bar.
* ``values``: numbers extracted from the scalars of any framework.

Tables are ``d2l_gpu.vgpu.Table``; timelines are in ``d2l_gpu/vgpu/sim/timeline.py``.
"""
