"""Slides on the site: each lesson has some, and a link to them."""

from tools.site.slides import FOLDER


def test_each_lesson_has_slides_and_links_to_them(book, site):
    for edition in book.built:
        names = book.lessons(edition)
        assert len(names) > 5
        for name in names:
            deck = f"{FOLDER}/{edition.folder}/{name}.html"
            assert (site / deck).is_file()
            page = (site / edition.folder / f"{name}.html").read_text("utf-8")
            assert f'href="../../{deck}"' in page
