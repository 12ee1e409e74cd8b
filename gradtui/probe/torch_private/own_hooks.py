"""Tell hooks of gradtui from those of the script, leave the ids of those alone, and let one run before others of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

_OWN, _TRAINS = "_is_of_gradtui", "_rows_that_train"

_next_id = -(2**62)
"""The id of the next hook of gradtui. torch adds 1 for each, and never comes to 0."""


@contextmanager
def own_ids() -> Iterator[None]:
    """Let the hooks that are registered in this context have ids of their own.

    torch numbers all hooks of the process, and pickles the number with the hooks of a module or an optimizer.
    """
    global _next_id
    of_script, RemovableHandle.next_id = RemovableHandle.next_id, _next_id
    try:
        yield
    finally:
        _next_id, RemovableHandle.next_id = RemovableHandle.next_id, of_script


def as_own(hook: Callable[..., Any], trains: slice | None = None) -> Callable[..., Any]:
    """Mark a hook as gradtui's, and return it. `trains`: of a hook that freezes rows, the rows for `trained_part`."""
    setattr(hook, _OWN, True)
    setattr(hook, _TRAINS, trains)
    return hook


def has_hooks(hooks: Mapping[int, Any] | None, *, own: bool) -> bool:
    """Return whether hooks of gradtui (`own`), or of the script, are in a dictionary of torch, which may be None."""
    return bool(hooks) and any(getattr(hook, _OWN, False) is own for hook in (hooks or {}).values())


def accumulation_hooks(tensor: torch.Tensor, *, own: bool) -> bool:
    """Return whether hooks of gradtui (`own`), or of the script, run when backward has stored the tensor's gradient.

    torch keeps them in a dictionary of the tensor that is None or absent until the first
    (`Tensor.register_post_accumulate_grad_hook`).
    """
    return has_hooks(getattr(tensor, "_post_accumulate_grad_hooks", None), own=own)


def trained_part(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return what trains of a parameter's `values`, its weights or its gradient: the longest range of rows that are not frozen.

    All of them if no rows are frozen, or if they are not laid out as the parameter is.
    """
    hooks = getattr(tensor, "_post_accumulate_grad_hooks", None)
    if not hooks or values.shape != tensor.shape:
        return values
    trains = next((rows for hook in hooks.values() if (rows := getattr(hook, _TRAINS, None)) is not None), None)
    return values if trains is None else values[trains]


def run_first(handle: RemovableHandle) -> RemovableHandle:
    """Let a hook run before those that were registered before it. Return its handle.

    torch calls hooks in the order of an `OrderedDict`, to which the handle refers.
    """
    hooks = handle.hooks_dict_ref()
    if hooks is not None and hasattr(hooks, "move_to_end"):
        hooks.move_to_end(handle.id, last=False)
    return handle
