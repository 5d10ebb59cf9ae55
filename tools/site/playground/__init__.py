"""The playground: the simulator, running in a page of the web book.

The folder ``playground`` of the site has two pages, one that trains a model and one
with the puzzle of lesson 17. Pyodide runs the simulator in a worker of the browser, so
that the pages never freeze. When the site is built, the same code computes what they
show at first, so they also say something without scripts.

* ``pages``: writes the pages, and what they load.
* ``form``: the controls.
* ``live``: answers what a page asks, in the browser and in the build. ``show`` turns
  answers into HTML, and ``curve`` draws how something scales.
* ``words.toml``: every text of the pages, by language. The simulator's own sentences
  are English.
* ``static``: ``worker.mjs`` runs Pyodide and ``simulator.js`` talks to it; ``train.js``
  and ``puzzle.js`` are for one page each.

The browser loads ``live``, ``show`` and ``curve``, too, so they import only each other,
the simulator and the standard library.
"""
