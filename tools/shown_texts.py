"""Texts in Python code that readers see, as messages to translate.

A text is a string literal, an f-string, or a sum of these. What an f-string computes
becomes a field of the message, named after the expression, as in ``{copies} copies``; a
choice between two literals becomes two messages. `d2l_gpu.common.messages` says how
such messages are found again in a finished text.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from d2l_gpu.common.messages import FIELD, is_telling

_WORD = re.compile(r"[A-Za-z]{2,}")
_CODE = re.compile(r"[\w.]+\([^ ]*\)|\w+[._/]\w+|[^\W\d]*_\w*|\w+:\d|--\w+|<\w|\\")
_PROGRAM = re.compile(
    r"^#!|^@rem |^--?\w|^d2l-gpu |^\w+=\$|"  # of a shell
    r"^(export [\w{]+(\}|=)|srun -|trap '|wait \$|set -)|"
    r"(^|\n|; )(import|from) \S+( import)?\b.*[;\n]|^File \"|^\"\"\"|"  # of Python
    r"\(\?:|\\[bswd]|%\(prog\)s|^\|.*\|$"  # patterns, and a table in Markdown
)
_LATER = re.compile(r"\{\{([a-z_]+)\}\}")
"""What `str.format` is to fill in is a field, too."""

_SHOWN = ("AnswerError",)  # errors whose messages readers see
_MOST = 8
"""More variants of one text than this aren't told apart: it's a field then."""


@dataclass(frozen=True)
class Text:
    """A text in the code.

    Attributes:
        message: the text, with its fields.
        line: the line where it begins.
    """

    message: str
    line: int


def texts_in(
    code: str, *, keys: bool, errors: bool = False, words: Collection[str] = ()
) -> Iterator[Text]:
    """Yield the texts in some code, in order, without docstrings.

    Args:
        code: valid Python.
        keys: whether keys of dictionaries are texts, too.
        errors: whether what errors say is, too.
        words: texts that don't look like any.

    Raises:
        SyntaxError: the code isn't valid.
    """
    tree = ast.parse(code)
    hidden = set(map(id, _not_shown(tree, keys, errors)))
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) in hidden:
            continue
        messages = _Reader().messages(node) if _may_be_text(node) else []
        for message in dict.fromkeys(messages):
            message = message.strip()
            if message in words or is_prose(message):
                yield Text(message, node.lineno)
        if template := _template(node):
            yield Text(template, node.lineno)
            waiting += [keyword.value for keyword in reversed(node.keywords)]
            continue
        children = list(ast.iter_child_nodes(node))
        if messages:  # its literals have been read; what it computes may hold more
            children = list(_computed(node))
        waiting += reversed(children)


def is_prose(message: str) -> bool:
    """Return whether a message is more than code, a number or a unit."""
    if message.lstrip().startswith("<") or '="' in message:
        return False  # markup
    if _PROGRAM.search(message):
        return False
    if FIELD.search(message) and not is_telling(message):
        return False
    fixed = [piece for piece in FIELD.split(message)[::2] if piece]
    words = [word for piece in fixed for word in _WORD.findall(_CODE.sub(" ", piece))]
    words = [word for word in words if word != word.upper()]
    if len(words) < 2 and not any(len(word) > 2 for word in words):
        return False  # but "up to" is prose
    return " " in message.strip() or not _CODE.search(message)


def _template(node: ast.AST) -> str:
    """Return the text of ``shown('{low} to {high}', low=…)``; empty if it's another."""
    match node:
        case ast.Call(
            func=ast.Name(id="shown" | "localized"),
            args=[ast.Constant(value=str() as text)],
            keywords=[_, *_],
        ):
            return text
    return ""


def _may_be_text(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        parts = list(_summands(node))
        return len(parts) > 1 and any(_is_literal(each) for each in parts)
    return isinstance(node, ast.JoinedStr)


def _is_literal(node: ast.AST) -> bool:
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_string or isinstance(node, ast.JoinedStr)


def _summands(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _summands(node.left)
        yield from _summands(node.right)
    else:
        yield node


def _computed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions in a text, which may contain texts of their own."""
    for part in _summands(node):
        if isinstance(part, ast.JoinedStr):
            for value in part.values:
                if isinstance(value, ast.FormattedValue) and not _choice(value.value):
                    yield value.value
        elif not _is_literal(part) and not _choice(part):
            yield part


def _choice(node: ast.AST) -> list[ast.AST] | None:
    """Return the literals that an expression chooses from; None if it's another."""
    match node:
        case ast.BinOp(
            left=ast.Constant(value=str()), op=ast.Mult(), right=ast.Compare()
        ):
            return [ast.Constant(""), node.left]  # as in "s" * (n > 1)
        case ast.IfExp():
            pass
        case _:
            return None
    found: list[ast.AST] = []
    for each in node.body, node.orelse:
        if _is_literal(each):
            found.append(each)
        elif (more := _choice(each)) is not None:
            found += more
        else:
            return None
    return found


def _not_shown(tree: ast.AST, keys: bool, errors: bool) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                yield node  # a docstring
            case ast.Subscript():
                yield node.slice
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name))) if name in _SHOWN:
                pass
            case ast.Raise() if errors:
                pass
            case ast.Raise() | ast.Assert():
                yield node
            case ast.Dict() if not keys:
                yield from filter(None, node.keys)
            case ast.Compare():
                yield node
            case ast.Call(
                func=ast.Attribute(value=ast.Constant() as words, attr="split")
            ):
                yield words
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                yield from node.args
            case ast.arg() | ast.AnnAssign(annotation=ast.Constant()):
                yield node.annotation
            case ast.FunctionDef(returns=ast.Constant() as returned):
                yield returned


class _Reader:
    """Reads one text, so that equal expressions have equal names in it."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def messages(self, node: ast.AST) -> list[str]:
        """Return the messages that a text stands for: one for each choice it makes."""
        found = [""]
        for part in _summands(node):
            pieces = part.values if isinstance(part, ast.JoinedStr) else [part]
            for piece in pieces:
                more = self._piece(piece)
                if len(found) * len(more) > _MOST:
                    more = ["{" + self._name(piece) + "}"]
                found = [begun + each for begun in found for each in more]
        return found

    def _piece(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.FormattedValue):
            if node.conversion == ord("s"):  # "!s" says that it's code
                return ["{" + self._name(node.value) + "_}"]
            node = node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            escaped = node.value.replace("{", "{{").replace("}", "}}")
            return [_LATER.sub(r"{\1}", escaped)]
        if isinstance(node, ast.JoinedStr):
            return self.messages(node)
        if (choice := _choice(node)) is not None:
            return [text for each in choice for text in self.messages(each)]
        return ["{" + self._name(node) + "}"]

    def _name(self, node: ast.AST) -> str:
        key = ast.unparse(node)
        if key not in self._names:
            name = wanted = _name_of(node)
            while name in self._names.values():
                digits = re.search(r"\d*$", name).group()
                name = f"{wanted}{int(digits or 1) + 1}"
            self._names[key] = name
        return self._names[key]


def _name_of(node: ast.AST) -> str:
    """Return a name for what an expression computes, for translators to read."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").rstrip("0123456789") or "value"
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return re.sub(r"\W+", "_", key).strip("_0123456789") or "value"
        case ast.Subscript(value=inner) | ast.BinOp(left=inner):
            return _name_of(inner)
        case ast.UnaryOp(operand=inner) | ast.FormattedValue(value=inner):
            return _name_of(inner)
        case ast.IfExp(body=inner):
            return _name_of(inner)
        case ast.Call(func=ast.Name(id="len" | "str" | "round" | "abs"), args=[inner]):
            return _name_of(inner)
        case ast.Call(func=inner):
            return _name_of(inner)
    return "value"
