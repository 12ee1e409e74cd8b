"""Which keys of a checkpoint would fit those of a module if their beginnings were others. Only names and shapes; no tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

_MAX_PREFIXES = 4
"""A part of a key with more prefixes than these, such as `weight`, says nothing about which keys belong together."""
_PART = 2
"""Tensors from which on a child of the module is a part of it."""

Shapes = Mapping[str, tuple[int, ...] | None]
"""By key: the shape of the tensor, None if it is no tensor."""


def shape_of(value: object) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None for anything else, and for a parameter without a shape so far."""
    return tuple(value.shape) if isinstance(value, torch.Tensor) and not nn.parameter.is_lazy(value) else None


def states_within(given: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the mappings to tensors that are values of `given`, such as `state_dict` of a whole checkpoint, with their keys."""
    for outer, value in given.items():
        if isinstance(value, Mapping) and any(isinstance(each, torch.Tensor) for each in value.values()):
            yield outer, value


def best_prefixes(given: Shapes, wanted: Shapes) -> tuple[tuple[str, str], list[str]]:
    """Return the beginning of given keys and what to put in its place so that most wanted keys fit, and these wanted keys.

    Two keys fit if the rest of them and the shapes are equal.
    """
    beginnings: dict[str, set[str]] = {}
    for key in wanted:
        for beginning, rest in _splits(key):
            beginnings.setdefault(rest, set()).add(beginning)
    found: Counter[tuple[str, str]] = Counter()
    fitting: dict[tuple[str, str], list[str]] = {}
    for key, shape in given.items():
        for beginning, rest in _splits(key):
            others = beginnings.get(rest, set())
            for other in others if len(others) <= _MAX_PREFIXES else others & {""}:
                if shape is not None and wanted[other + rest] == shape and other != beginning:
                    found[beginning, other] += 1
                    fitting.setdefault((beginning, other), []).append(other + rest)
    # Of equally good ones the shortest.
    best = min(found, key=lambda each: (-found[each], len(each[0]) + len(each[1])), default=None)
    if best is None or 2 * found[best] < min(len(given), len(wanted)):
        return ("", ""), []
    return best, fitting[best]


def whole_parts(missing: Iterable[str], own: Collection[str]) -> frozenset[str]:
    """Return the missing keys of children of the module of which every key is missing."""
    of_child: Counter[str] = Counter(key.partition(".")[0] for key in own if "." in key)
    gone = Counter(key.partition(".")[0] for key in missing if "." in key)
    whole = {child for child, count in gone.items() if count >= max(_PART, of_child[child])}
    return frozenset(key for key in missing if key.partition(".")[0] in whole)


def _splits(key: str) -> Iterator[tuple[str, str]]:
    at = 0
    while True:
        yield key[:at], key[at:]
        dot = key.find(".", at)
        if dot < 0:
            return
        at = dot + 1
