"""Decide whether a module's call may be checkpointed, by names that torch does not promise to keep. Any thread.

Where a name is missing nothing is checkpointed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.dynamo_frames import what_compiles
from gradtui.probe.torch_private.private_names import current_graph_task_id, is_being_traced

_hooks_in_force: Callable[[bool], Any] | None = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
_hooks_are_allowed: Callable[[], bool] | None = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
_transforms: Callable[[], Any] | None = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)

HAS_CHECKPOINT_STATE = _hooks_in_force is not None and _hooks_are_allowed is not None and _transforms is not None
"""Whether this version of torch has the functions that `applies` calls."""


def applies() -> bool:
    """Return whether a call that begins now, on this thread, may be checkpointed.

    It may not without autograd recording (nothing is saved), nor under hooks on saved tensors: the script's own checkpoint
    or offloading, or a checkpointed module around this one. A recomputed region must save the same tensors in the same
    order as the first time. The same hooks are active then, so that the answer is the same. It may not within backward
    either, where a reentrant checkpoint recomputes its region.
    """
    if not torch.is_grad_enabled() or current_graph_task_id() != -1:
        return False
    if _hooks_in_force is None or _hooks_are_allowed is None or _transforms is None:
        return False
    if not _hooks_are_allowed() or _hooks_in_force(False) is not None or _transforms() is not None:
        return False
    if is_being_traced() or what_compiles():
        return False
    return not is_capturing()
