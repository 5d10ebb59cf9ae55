"""Changes to parts of PyTorch that take long to import, and that few programs use."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable


def when_imported(name: str, change: Callable[[], None]) -> None:
    """Call a function once a module has been imported, at once if it has been."""
    if name in sys.modules:
        change()
    else:
        sys.meta_path.insert(0, _WhenImported(name, change))


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds a module as others do, and calls a function after it has run."""

    def __init__(self, name: str, change: Callable[[], None]):
        self.name, self.change = name, change
        self.asks = False  # the other finders

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self.asks:
            return None
        self.asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asks = False
        execute = spec.loader.exec_module

        def exec_module(module) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.change()

        spec.loader.exec_module = exec_module
        return spec
