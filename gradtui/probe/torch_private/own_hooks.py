"""Tell gradtui's hooks on a parameter from those of the script, and let one run before all others of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

_OWN = "_is_of_gradtui"


def as_own(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a hook as gradtui's, and return it."""
    setattr(hook, _OWN, True)
    return hook


def accumulation_hooks(tensor: torch.Tensor, *, own: bool) -> bool:
    """Return whether hooks of gradtui (`own`), or of the script, run when backward has stored the tensor's gradient.

    torch keeps them in a dictionary of the tensor that is None or absent until the first
    (`Tensor.register_post_accumulate_grad_hook`).
    """
    hooks = getattr(tensor, "_post_accumulate_grad_hooks", None)
    return hooks is not None and any(getattr(hook, _OWN, False) is own for hook in hooks.values())


def run_first(handle: RemovableHandle) -> RemovableHandle:
    """Let a hook run before those that were registered before it. Return its handle.

    torch calls hooks in the order of an `OrderedDict`, to which the handle refers.
    """
    hooks = handle.hooks_dict_ref()
    if hooks is not None and hasattr(hooks, "move_to_end"):
        hooks.move_to_end(handle.id, last=False)
    return handle
