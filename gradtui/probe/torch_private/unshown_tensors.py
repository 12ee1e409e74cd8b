"""Read what autograd keeps with a torch whose `SavedTensor` shows neither its tensor nor its hooks: versions before 2.10.

A node's `_saved_x` unpacks the content of its `_raw_saved_x`. Where the script has set hooks on saved tensors, as
`torch.utils.checkpoint` does, unpacking runs them, and torch does not show whether a tensor has any. So gradtui reads no
saved tensor after the script has set such hooks: what the graphs keep is unknown from then on. Training thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gradtui.system.own_frames import hide

ARE_SHOWN = hasattr(getattr(torch._C._autograd, "SavedTensor", None), "unpack_hook")  # noqa: SLF001
"""Whether a `SavedTensor` shows its tensor and its hook. Otherwise hooks must be watched for, from the beginning."""
PUSH = "_push_saved_tensors_default_hooks"
"""The function of `torch._C._autograd` by which `saved_tensors_hooks` sets its hooks."""


class Unhooked:
    """What a `SavedTensor` without hooks shows from torch 2.10 on."""

    __slots__ = ("data",)
    unpack_hook = None

    def __init__(self, data: torch.Tensor | None) -> None:
        self.data = data


class _Hooks:
    are_watched = False
    were_set = False


def watching(push: Callable[..., Any]) -> Callable[..., Any]:
    """Return `push` with a note that hooks were set. It is called anew for each watch, which knows of none."""
    _Hooks.are_watched, _Hooks.were_set = True, False

    @functools.wraps(push)
    def noting(*hooks: Any) -> Any:
        _Hooks.were_set = True
        return push(*hooks)

    return hide(noting)


def are_readable() -> bool:
    """Return whether what the graphs keep can be read."""
    return ARE_SHOWN or (_Hooks.are_watched and not _Hooks.were_set)


def saved(node: Any, name: str) -> Any:
    """Return the node's attribute `name` (`_raw_saved_x`), or what shows the same content where that does not; None if there is
    no such attribute."""
    raw = getattr(node, name, None)
    if ARE_SHOWN or raw is None or not are_readable():
        return raw
    shown = name.removeprefix("_raw")
    try:
        # A custom Function's node has the name without the underscore.
        value = getattr(node, shown if hasattr(type(node), shown) else shown[1:])
    except (RuntimeError, AttributeError):
        return raw  # freed, or written in place since
    if isinstance(value, (tuple, list)):
        return [Unhooked(each) for each in value]
    return Unhooked(value)
