"""What ``d2l-gpu`` can do, one module for each command.

Each has ``add``, which adds the command and its arguments to the parser; the rest is
imported when the command runs, so that ``d2l-gpu --help`` is quick and needs nothing.

* ``arguments``: arguments that several commands take;
* ``needs``: which lessons they're about, and what isn't installed for them.
"""
