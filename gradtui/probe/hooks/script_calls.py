"""Wrap the functions of torch that scripts call seldom, to load and to save. Runs on the training thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from gradtui.probe.parts import ProbeParts
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.system.own_frames import hide

Function = Callable[..., Any]
_PART = "calls of the script"


def install(parts: ProbeParts) -> None:
    """Install the wrappers; `hooks.remove()` removes them."""
    hooks = parts.hooks
    hooks.patch(nn.Module, "load_state_dict", functools.partial(_load_module, parts))


def _load_module(parts: ProbeParts, original: Function) -> Function:
    hooks = parts.hooks

    @functools.wraps(original)
    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if hooks.active:
            hooks.run(_PART, parts.script_calls.module_load_begins, self, state_dict)
        try:
            result = original(self, state_dict, *args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        if hooks.active:
            hooks.run(_PART, parts.script_calls.module_load_ended, self, state_dict, result)
        return result

    return leave_to_python(hide(load_state_dict))
