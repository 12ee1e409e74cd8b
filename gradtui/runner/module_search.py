"""Find the module of `-m MODULE` as python's `-m` does. Main thread.

There are two searches. The early one imports nothing, so that a misspelt module is refused before anything starts. The
late one, just before the module runs, imports the parent packages, which are the script's own code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import cast


class ModuleSearchError(Exception):
    """A module cannot be run. The message is the one that python's `-m` prints after its own name."""


@contextlib.contextmanager
def searching_first(directory: str | None) -> Iterator[None]:
    """Put `directory` at the head of sys.path while a module is searched for. None changes nothing."""
    before = sys.path[:]
    if directory is not None:
        sys.path[:1] = [directory]
    try:
        yield
    finally:
        sys.path[:] = before


def find_early(name: str) -> tuple[ModuleSpec, CodeType] | None:
    """Find and compile a module without importing its parent packages.

    Returns:
        Its spec and code, or None if only running the parent packages can decide (they may extend their `__path__`).

    Raises:
        ModuleSearchError: the module certainly cannot be run.
        SyntaxError: its source does not compile.
    """
    if name.startswith("."):
        raise ModuleSearchError("Relative module names not supported")
    parts = name.split(".")
    spec: ModuleSpec | None = None
    for count in range(1, len(parts) + 1):
        path = spec.submodule_search_locations if spec is not None else None
        if count > 1 and path is None:
            parent = ".".join(parts[: count - 1])
            whole = ".".join(parts[:count])
            problem = f"__path__ attribute not found on {parent!r} while trying to find {whole!r}"
            raise ModuleSearchError(_not_found(name, problem))
        spec = _find_in(".".join(parts[:count]), path)
        if spec is None and count == 1:
            problem = f"No module named {parts[0]!r}"
            raise ModuleSearchError(_not_found(name, problem) if len(parts) > 1 else f"No module named {name}")
        if spec is None:
            return None
    assert spec is not None
    if spec.submodule_search_locations is not None:
        if _find_in(f"{name}.__main__", spec.submodule_search_locations) is None:
            return None
        return find_early(f"{name}.__main__")
    return spec, _code_of(spec)


def find_late(name: str) -> tuple[ModuleSpec, CodeType]:
    """Find and compile a module after importing its parent packages, as python does right before running it.

    Raises:
        ModuleSearchError: the module cannot be run.
        Exception: whatever the parent packages' own code raises.
    """
    parent = name.rpartition(".")[0]
    if parent:
        _import_parents(name, parent)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ModuleSearchError(_not_found(name, str(error), type(error).__name__)) from None
    if spec is None:
        raise ModuleSearchError(f"No module named {name}")
    if spec.submodule_search_locations is not None:
        if name.endswith(".__main__"):
            raise ModuleSearchError("Cannot use package as __main__ module")
        try:
            return find_late(f"{name}.__main__")
        except ModuleSearchError as error:
            problem = f"{error}; {name!r} is a package and cannot be directly executed"
            raise ModuleSearchError(problem) from None
    return spec, _code_of(spec)


def _import_parents(name: str, parent: str) -> None:
    try:
        __import__(parent)
    except ImportError as error:
        # The search reports a missing parent; an import that fails inside a parent is an error of the script.
        if error.name is None or (error.name != parent and not parent.startswith(error.name + ".")):
            raise
    existing = sys.modules.get(name)
    if existing is not None and not hasattr(existing, "__path__"):
        warnings.warn(
            f"{name!r} found in sys.modules after import of package {parent!r}, but prior to execution of {name!r}; "
            "this may result in unpredictable behaviour",
            RuntimeWarning,
            stacklevel=1,
        )


def _find_in(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        look = getattr(finder, "find_spec", None)
        spec = look(name, path, None) if look is not None else None
        if spec is not None:
            return cast("ModuleSpec", spec)
    return None


def _code_of(spec: ModuleSpec) -> CodeType:
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(spec.name) if get_code is not None else None
    if code is None:
        raise ModuleSearchError(f"No code object available for {spec.name}")
    return cast("CodeType", code)


def _not_found(name: str, problem: str, kind: str = "ModuleNotFoundError") -> str:
    message = f"Error while finding module specification for {name!r} ({kind}: {problem})"
    if name.endswith(".py"):
        message += f". Try using '{name[:-3]}' instead of '{name}' as the module name."
    return message
