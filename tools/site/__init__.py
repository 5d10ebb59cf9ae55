"""The course as a web book: static pages of the committed notebooks, not run again.

    python -m tools.site                    every edition, to the folder site
    python -m tools.site --language en --framework pytorch
    python -m tools.site --out FOLDER --jobs 2
    python -m tools.site --links            list all links to other hosts

An edition is a language and a framework. Each becomes a Sphinx project of its own in a
temporary folder, so that it has its own search and its own order of pages, and comes
out as ``<language>/<framework>/``; a landing page links to them. Sphinx and what it
needs are the extra ``site``, and MathJax is one file of an npm package that
``npm ci --prefix tools/site`` installs.

The theme is Furo, because its sidebar, its dark mode and its layout on phones need no
other host and almost no JavaScript, and it can be read without any.

Beside the course is the documentation of virtual GPUs as a library, in ``vgpu/``: also
a Sphinx project of its own, made of ``docs/vgpu`` and of docstrings.

* ``book``: which pages there are, and the link from one to another.
* ``source``: what Sphinx reads for an edition.
* ``sphinx_build``: how Sphinx is configured and run.
* ``extension``: links between pages, the switch of languages and frameworks, and the
  search in Chinese.
* ``reading``: another one, for what readers use: ``sections`` with the same anchors in
  all languages, ``folding`` of setup and solutions, links to ``terms``, and the theme's
  words in other languages (``theme.toml``).
* ``answering``: a third, which makes our drawings part of the page; timelines and
  pictures of memory answer by ``static/answers*.js``.
* ``links``: all links of a site, to check them.
* ``landing``: the pages at the root, one in each language, and what they show of
  virtual GPUs, as recorded.
* ``vgpu_docs``, ``vgpu_extension``: the documentation of virtual GPUs.
* ``words.toml``: the few words of the pages that lessons don't have, by language.
"""
