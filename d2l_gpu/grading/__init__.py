"""``d2l-gpu grade``: check the exercises in a folder of notebooks.

* ``submissions``: which notebooks there are, and of which lesson; ``names``: whose.
* ``class_list``: everyone in the class; ``students``: what came of each.
* ``plan``: what is to be done with each notebook, before any of it runs.
* ``run``: grades them, several at a time, and keeps what's done.
* ``supervisor``: a process for each notebook: it starts the process that runs the
  cells, stops it, and has the answers judged as ``d2l.check`` does.
* ``cells_process``: the process that runs a notebook's cells, within the limits that
  answers have, and sends the answers off. No code of a notebook runs anywhere else but
  in the processes of its answers.
* ``answers``: the cells that answer an exercise, and what reports call them.
* ``results``: what came of a notebook and of a class, as plain data.
* ``points``: what an answer is worth.
* ``stuck``: what most of the class got wrong.
* ``tables``: the files that are written; ``page``: the page of the class and those of
  the students, from templates.
"""
