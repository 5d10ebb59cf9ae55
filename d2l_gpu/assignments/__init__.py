"""The exercises of a lesson as an assignment of another program that grades.

* ``questions``: takes a lesson apart: what its exercises need, their texts, stubs and
  solutions.
* ``nbgrader``: a course that nbgrader releases, collects and grades.
* ``otter``: a notebook from which ``otter assign`` makes what Gradescope needs.

Both let this course's own judge give the verdict, so an answer still runs in a process
of its own, whatever executes the rest of the notebook.
"""
