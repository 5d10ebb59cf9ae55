"""What a reader has solved: kept by ``d2l.check``, shown by ``d2l-gpu progress``.

* ``record``: one small file for each exercise that passed, in the user's data folder.
* ``table``: the lessons of an edition, their exercises, and which are solved.
* ``certificate``: a page to print; ``words`` are its words in each language.

It's a record that readers keep for themselves. Everything in it could be written by
hand, so it proves nothing.
"""
