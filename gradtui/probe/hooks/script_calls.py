"""Wrap the functions of torch that scripts call seldom, to load and to save. Runs on the training thread."""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, ReduceLROnPlateau, SequentialLR

from gradtui.probe.hooks.torch_hooks import report_init
from gradtui.probe.parts import ProbeParts
from gradtui.probe.runtime import HookSet
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.system.own_frames import hide

Function = Callable[..., Any]
_PART = "calls of the script"


def install(parts: ProbeParts) -> None:
    """Install the wrappers; `hooks.remove()` removes them."""
    hooks, calls = parts.hooks, parts.script_calls
    hooks.patch(nn.Module, "load_state_dict", functools.partial(_load_module, parts))
    hooks.patch(nn.Module, "state_dict", functools.partial(_then, hooks, calls.module_state_made))
    hooks.patch(Optimizer, "state_dict", functools.partial(_then, hooks, calls.optimizer_state_made))
    # One wrapper for both names of the function.
    save = functools.cache(functools.partial(_save, parts))
    load = functools.cache(functools.partial(_load, parts))
    for owner in (torch, torch.serialization):
        hooks.patch(owner, "save", save)
        hooks.patch(owner, "load", load)
    # These call no constructor of their parent class.
    for kind in (LRScheduler, ReduceLROnPlateau, SequentialLR, ChainedScheduler):
        hooks.patch(kind, "__init__", functools.partial(report_init, hooks, _PART, calls.scheduler_made))


def _is_here(hooks: HookSet) -> bool:
    """Return whether the training thread calls. What follows leaves steps buffered: scripts that average weights call often."""
    return hooks.active and hooks.thread in (None, get_ident())


def _load_module(parts: ProbeParts, original: Function) -> Function:
    hooks = parts.hooks

    @functools.wraps(original)
    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if is_here := _is_here(hooks):
            hooks.guard(_PART, parts.script_calls.module_load_begins, self, state_dict)
        try:
            result = original(self, state_dict, *args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        if is_here:
            hooks.guard(_PART, parts.script_calls.module_load_ended, self, state_dict, result)
        return result

    return leave_to_python(hide(load_state_dict))


def _then(hooks: HookSet, made: Callable[[Any, Any], None], original: Function) -> Function:
    @functools.wraps(original)
    def state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A module calls it for each of its children, with what is to be filled.
        is_whole = not args and kwargs.get("destination") is None and _is_here(hooks)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            if is_whole:
                hooks.passes(error)
            hooks.strip(error)
            raise
        if is_whole:
            hooks.guard(_PART, made, self, result)
        return result

    return leave_to_python(hide(state_dict))


def _save(parts: ProbeParts, original: Function) -> Function:
    hooks = parts.hooks

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        if hooks.active:
            saved = args[0] if args else kwargs.get("obj")
            hooks.run(_PART, parts.on_save_pre, saved, args[1] if len(args) > 1 else kwargs.get("f"))
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        finally:
            if hooks.active:
                hooks.run(_PART, parts.on_save_post)

    return leave_to_python(hide(save))


def _load(parts: ProbeParts, original: Function) -> Function:
    hooks = parts.hooks

    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(f, *args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        # Data sets load files too, for each of their samples.
        if isinstance(result, dict) and _is_here(hooks):
            hooks.guard(_PART, parts.script_calls.loaded, result, f)
        return result

    return leave_to_python(hide(load))
