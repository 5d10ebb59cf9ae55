"""What maintainers run, each with ``python -m tools.<name>``, and what it's made of.

Building the notebooks:

* ``build`` (``--watch``: ``watch``): makes the notebooks from ``lessons/``.
* ``lesson`` reads a source, ``form`` checks what readers rely on, ``edition`` knows
  which notebooks there are, ``header`` puts their top and end together, ``figures``
  embeds drawings, ``equivalents`` makes A2's table, ``course_map`` those of lessons,
  ``quizzes`` the files of quizzes.
* ``notebook``, ``outputs``, ``tolerance``: executed notebooks, and how their outputs
  are compared; ``check`` finds what is wrong with one.
* ``readme``: the READMEs and the tables in ``docs/``; ``marks`` finds their places.
  ``glossary_page``: the page with all terms.
* ``overview``: the picture of the README.

The web book: ``site`` makes pages of the committed notebooks, and of ``docs/vgpu``.
``examples`` runs the examples there, and ``vgpu_figures`` writes what was measured.

Translating: ``translate`` is the command, ``translation`` merges, ``paragraphs`` takes
a text apart, ``languages`` knows each language's ways, ``translation_checks`` and
``glossary`` judge the result.

The simulator: ``record`` and ``record_networks`` write its recordings, of the programs
in ``plan_training`` and ``network_training``; ``puzzles`` simulates all plans of the
puzzle; ``play_settings`` prints what the playground says.

Checking: ``pytest_setup`` (how pytest runs notebooks), ``conformance`` (virtual GPUs
against the CPU, as a table), ``ecosystem`` (libraries on virtual GPUs), ``faults``
(planted mistakes), ``compare_notebooks`` (with another commit; ``renames.tsv`` lists
names that have changed), ``durations``, ``workflows`` (of GitHub), ``pyodide`` (the
simulation on the Python of browsers).

Environments and releases: ``environments``, ``companion`` (the book's package),
``classroom`` (handouts), ``check_wheel``, ``release``.
"""
