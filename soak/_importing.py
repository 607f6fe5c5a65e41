"""Modules that are imported with another syntax tree than their file's."""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

Change = Callable[[str], ast.Module]
"""From a module's text to the syntax tree that is compiled in its place."""


class Finder(importlib.abc.MetaPathFinder):
    """A finder of changed modules: by name, the file and the change."""

    def __init__(self, changes: Mapping[str, tuple[Path, Change]]) -> None:
        self.changes = changes

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> Any:
        """Return the loader of a module that is changed."""
        if fullname not in self.changes:
            return None
        file, change = self.changes[fullname]
        loader = _Loader(fullname, str(file))
        loader.change = change
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """A loader that compiles a changed module."""

    change: Change

    def get_code(self, fullname: str) -> Any:
        return compile(self.change(Path(self.path).read_text()), self.path, "exec", dont_inherit=True)


def module_name(root: Path, path: Path) -> str:
    """Return the name of the module that a file has."""
    return ".".join(path.relative_to(root).with_suffix("").parts)
