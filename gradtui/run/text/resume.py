"""Saved and loaded trainings in words. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gradtui.run.text.units import plural

_NAMED = 2


def file_name(path: str) -> str:
    """Return the last parts of the path of a checkpoint, by which its user knows it."""
    parts = path.split(os.sep)
    return os.sep.join(parts[-2:]) if path else "what was loaded"


def modules_of(names: Sequence[str], count: int) -> str:
    """Return parameters by their modules: `blocks.7 (12 tensors)`, `head.weight and head.bias`.

    `names` are the first ones of `count`.
    """
    if len(names) <= _NAMED and count == len(names):
        return " and ".join(names)
    shared = _shared_module(names)
    if shared:
        return f"{shared} ({plural(count, 'tensor')})"
    tops = list(dict.fromkeys(".".join(name.split(".")[:2]) if name.count(".") > 1 else name for name in names))
    named = ", ".join(tops[:_NAMED])
    return (
        f"{named} and others ({plural(count, 'tensor')})"
        if len(tops) > _NAMED
        else f"{named} ({plural(count, 'tensor')})"
    )


def _shared_module(names: Sequence[str]) -> str:
    parts = [name.split(".")[:-1] for name in names]
    shared: list[str] = []
    for level in zip(*parts):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared)
