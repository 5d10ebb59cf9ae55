"""Variants of exercises: other numbers, sizes and data, so that copies don't pass.

A grader declares what may vary, and gets it as keyword arguments::

    @EXERCISES.add("02.4", "B", vary={"b": one_of(2, 3, 5), "c": one_of(3, 2, 7)})
    def polynomial(run, b, c): ...

Without a variant that's the ordinary value, the first one. A variant draws another.

* ``draw``: a variant's name, and what it draws: the same on each machine and Python.
* ``texts``: puts what was drawn into an exercise's text, where ``texts.toml`` says.
* ``notebooks``: the notebooks for students, and the key; ``d2l-gpu variant``.
"""
