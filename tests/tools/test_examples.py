"""Examples on pages of documentation are run, and what they print is compared."""

import pytest

from tools import examples

PAGE = """\
# A page

```python
# double.py
def double(x):
    return 2 * x
```

```python
from double import double

print(double(3))
```

```text
6
```

```python raises
double(None)
```

```text
TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'
```

```sh
python -c "from double import double; print(double(4))"
```

```text
8
```

```sh
pip install a-package-that-does-not-exist
```
"""


@pytest.fixture
def page(tmp_path):
    """A function that writes a page, and returns what it says once it has run."""

    def run(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return examples.with_outputs(text, examples.outputs(path))

    return run


def test_a_page_that_says_what_is_printed_stays(page):
    assert page(PAGE) == PAGE


def test_another_output_is_replaced(page):
    assert page(PAGE.replace("```text\n6", "```text\n7")) == PAGE


def test_an_output_that_is_missing_is_added(page):
    assert page(PAGE.replace("\n```text\n6\n```\n", "")) == PAGE


def test_an_output_that_is_not_printed_goes(page):
    extra = "```\n\n```text\nnothing\n```\n\n```python\nfrom"
    assert page(PAGE.replace("```\n\n```python\nfrom", extra, 1)) == PAGE


def test_an_error_that_is_not_announced_is_one(page):
    with pytest.raises(RuntimeError, match="TypeError"):
        page(PAGE.replace("python raises", "python"))


def test_an_announced_error_must_be_raised(page):
    with pytest.raises(RuntimeError, match="raises no error"):
        page(PAGE.replace("double(None)", "double(1)"))


def test_a_command_that_fails_is_an_error(page):
    with pytest.raises(RuntimeError, match="exit 3"):
        page("```sh\nexit 3\n```\n")
    assert page("```sh raises\nexit 3\n```\n") == "```sh raises\nexit 3\n```\n"


def test_seconds_that_a_program_took_are_not_compared(page):
    text = "```sh\necho 3 passed in 2.47s\n```\n\n```text\n3 passed in 1.00s\n```\n"
    assert page(text) == text
    wrong = text.replace("3 passed in 1", "4 passed in 1")
    assert "```text\n3 passed in 2.47s" in page(wrong)


def test_check_says_which_pages_are_out_of_date(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert examples.main(["--check", str(path)]) is None
    path.write_text(wrong := PAGE.replace("```text\n6", "```text\n7"))
    assert "page.md" in examples.main(["--check", str(path)])
    assert path.read_text() == wrong
    assert examples.main([str(path)]) is None
    assert path.read_text() == PAGE
