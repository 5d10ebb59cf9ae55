"""A Sphinx extension: links within the book, its switches, and search in Chinese."""

import re

import sphinx.search
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from tools.site.book import words

_HAN = r"\u3400-\u9fff\uf900-\ufaff"


class SearchChinese(SearchEnglish):
    """Search for Chinese by all pairs of neighbouring characters.

    Python and JavaScript cut texts and queries the same way without a dictionary, so
    whatever is written in a text is found. Words in Latin letters are as in English.
    """

    lang = "zh"
    language_name = "English"  # whose stemmer the pages load
    js_splitter_code = f"""
function splitQuery(query) {{
  const runs = query.match(/[{_HAN}]+|(?:(?![{_HAN}])[\\p{{L}}\\p{{N}}_])+/gu) || [];
  return runs.flatMap((run) => {{
    if (!/^[{_HAN}]{{2,}}$/u.test(run)) return [run];
    return Array.from(run.slice(1), (next, i) => run[i] + next);
  }});
}}
"""
    _runs = re.compile(rf"[{_HAN}]+|[^\W{_HAN}]+")

    def split(self, input: str) -> list[str]:
        """Return the pairs and the words of a text."""
        found = []
        for run in self._runs.findall(input):
            if re.fullmatch(f"[{_HAN}]{{2,}}", run):
                found += [run[i : i + 2] for i in range(len(run) - 1)]
            else:
                found.append(run)
        return found


def _link_within(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace links to the project's files on GitHub by links to pages of the site."""
    book, edition = app.config.d2l_book, app.config.d2l_edition
    for reference in doctree.findall(nodes.reference):
        url = reference.get("refuri", "")
        link = book.rewritten(url, edition, docname)
        if link != url:
            reference["refuri"], reference["internal"] = link, True


def _add_switch(app: Sphinx, pagename: str, templatename, context: dict, doctree):
    """Give the templates the links to the same page in other editions."""
    book, edition = app.config.d2l_book, app.config.d2l_edition
    if not book.has(edition, pagename):
        return
    its = words(edition.language)
    frameworks = book.switch_of_frameworks(edition, pagename)
    absent = [each.name for each in frameworks if each.link is None]
    context["switch"] = {
        its["language"]: book.switch_of_languages(edition, pagename),
        its["framework"]: frameworks,
    }
    context["absent"] = its["absent"].format(frameworks=its["comma"].join(absent))
    context["any_absent"] = bool(absent)


def setup(app: Sphinx) -> dict:
    """Add the extension to Sphinx."""
    app.add_config_value("d2l_book", None, "")
    app.add_config_value("d2l_edition", None, "")
    app.connect("doctree-resolved", _link_within)
    app.connect("html-page-context", _add_switch)
    sphinx.search.languages["zh"] = SearchChinese
    return {"parallel_read_safe": True, "parallel_write_safe": True}
