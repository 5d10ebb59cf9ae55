"""Slides of a lesson: what ``d2l-gpu slides`` does.

* ``prose``: Markdown in blocks, paragraphs in sentences.
* ``parts``: what a slide consists of, and how much room each part takes.
* ``cells``, ``excerpts``: what a slide shows of a cell, and of a block of text.
* ``rules``: how a lesson becomes slides, and what its speaker says.
* ``packing``: parts onto slides, with code and output divided where they're too long.
* ``deck``: the slides as a notebook, to be exported or to be run live.
* ``pages``: one HTML page with all it needs, reveal.js included.
* ``write``: the files of several lessons.

``reveal`` holds parts of reveal.js 6.0.2, unchanged, with its license.
"""
