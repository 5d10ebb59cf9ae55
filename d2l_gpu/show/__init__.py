"""What readers look at: one style for every figure, table and progress bar.

* ``style``: colours, line styles, markers and sizes of all figures.
* ``live``: figures that grow while a cell runs, in one display of Jupyter.
* ``training_curves``: ``ProgressBoard`` and ``Animator``, curves of a training run.
* ``text_curves``: the same curves as lines of text, where there is no Jupyter.
* ``plots``: ``plot`` and ``roofline``, figures of finished results.
* ``progress``: the progress bar.
* ``values``: single numbers, out of whatever a framework calls one.

Tables are ``d2l_gpu.vgpu.Table``, timelines ``d2l_gpu/vgpu/sim/timeline.py``.
"""
