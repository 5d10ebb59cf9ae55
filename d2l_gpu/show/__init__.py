"""What readers look at, with one style for all figures, tables and progress bars.

* ``style``: sizes, and the colour, line and marker of each curve.
* ``fonts``: fonts for languages that Matplotlib's own has no letters for.
* ``sheet``: the page that a figure is drawn on, with its title and subtitle.
* ``axis``: limits and ticks of an axis.
* ``curves``, ``bars``, ``roofline``: figures of finished results.
* ``images``: small pictures in rows.
* ``panels``: several of these figures in one.
* ``live``: figures that grow while a cell runs, in a single Jupyter display.
* ``training_curves``: ``ProgressBoard`` and ``Animator``, curves of a training run.
* ``text_curves``: the same curves as lines of text, outside Jupyter.
* ``progress``: the progress bar.
* ``values``: numbers extracted from the scalars of any framework.

Tables are ``d2l_gpu.vgpu.Table``. Timelines are in ``d2l_gpu/vgpu/sim/timeline.py``,
and colours, ticks and units of all pictures in ``d2l_gpu/vgpu/sim/drawing.py``.
"""
