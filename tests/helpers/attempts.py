"""Code that tests put before their own, to call what may fail in another process."""

# The result of a call, or the name of its error and what it says: printed.
PRINTED = """
def attempt(function, *args, **kwargs):
    try:
        print(function(*args, **kwargs))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""

# What a call prints, or else its result, or the name of its error and what it says.
RETURNED = """
import contextlib, io

def attempt(function, *args):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            result = function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return said.getvalue().strip() or result
"""
