"""``d2l-gpu grade``: check the exercises in a folder of notebooks.

* ``submissions``: which notebooks there are, whose, and of which lesson.
* ``run``: grades them, several at a time, and keeps what's done.
* ``supervisor``: a process for each notebook: it starts the process that runs the
  cells, stops it, and has the answers judged as ``d2l.check`` does.
* ``cells_process``: the process that runs a notebook's cells, within the limits that
  answers have, and sends the answers off. No code of a notebook runs anywhere else but
  in the processes of its answers.
* ``results``: what came of a notebook and of a class, as plain data.
* ``points``: what an answer is worth.
* ``stuck``: what most of the class got wrong.
* ``page``, ``tables``: the page, the tables and the feedback that are written.
"""
