"""Group paths of parameters by the modules that contain them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

MAX_GROUPS = 12
_MAX_LEVELS = 64

_K = TypeVar("_K", bound=Hashable)


def groups_of(paths: Sequence[str], most: int = MAX_GROUPS) -> dict[str, tuple[str, ...]]:
    """Divide paths into groups, each with the paths in one module, by its path; in the order of the paths.

    The group with most paths is divided again while there are at most `most`. The children of the root are always groups. A
    parameter can be a group of its own.
    """
    order = {path: at for at, path in enumerate(dict.fromkeys(paths))}
    groups, whole = {"": tuple(order)}, set[str]()
    while len(whole) < len(groups):
        largest = max((name for name in groups if name not in whole), key=lambda name: len(groups[name]))
        parts: dict[str, list[str]] = {}
        for path in groups[largest]:
            parts.setdefault(_longer_prefix(largest, path), []).append(path)
        if largest in parts or (largest and len(groups) - 1 + len(parts) > most):
            whole.add(largest)
            continue
        del groups[largest]
        groups |= {name: tuple(within) for name, within in parts.items()}
    return dict(sorted(groups.items(), key=lambda item: order[item[1][0]]))


def _longer_prefix(prefix: str, path: str) -> str:
    """Return the first part of `path` that is longer than `prefix` by one name; the path itself if there is none."""
    end = path.find(".", len(prefix) + 1 if prefix else 0)
    return path if end < 0 else path[:end]


def topmost(paths: Sequence[str], key_of: Callable[[str], _K]) -> list[tuple[str, _K, tuple[str, ...]]]:
    """Return (module, key, paths) for the topmost modules whose parameters all have one key, in the order of the paths.

    A parameter of a module with several keys stands for itself. The path of everything is empty.
    """
    keys: dict[str, set[_K]] = {}
    within: dict[str, list[str]] = {}
    for path in paths:
        for prefix in _prefixes(path):
            keys.setdefault(prefix, set()).add(key_of(path))
            within.setdefault(prefix, []).append(path)
    found: dict[str, tuple[str, _K, tuple[str, ...]]] = {}
    for path in paths:
        top = next((prefix for prefix in _prefixes(path) if len(keys[prefix]) == 1), path)
        found.setdefault(top, (top, key_of(path), tuple(within[top])))
    return list(found.values())


def _prefixes(path: str) -> list[str]:
    """Return the paths of the modules around a parameter, the outermost first, and its own path."""
    ends = [at for at, letter in enumerate(path) if letter == "."][:_MAX_LEVELS]
    return ["", *(path[:end] for end in ends), path]
