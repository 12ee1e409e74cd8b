"""Wrap what writes and reads checkpoints besides `torch.save`, in libraries that the script has imported. Training thread.

Scripts and other libraries import functions such as `safetensors.torch.save_file` by their names, before gradtui could replace
them. So what is wrapped is the function of the same module that they end in. gradtui imports none of these modules.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable, Mapping
from typing import Any

from gradtui.probe.parts import ProbeParts
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.system.own_frames import hide

Function = Callable[..., Any]
_PART = "calls of the script"
_READERS = ("safetensors", "torch.distributed.checkpoint", "deepspeed")
"""Modules that read weights from files by functions that are not wrapped."""


class CheckpointLibraries:
    """The functions that are not wrapped yet."""

    def __init__(self, parts: ProbeParts) -> None:
        self._parts, self._has_reader = parts, False
        distributed = "torch.distributed.checkpoint.state_dict_"
        self._waiting: list[tuple[str, str, Callable[[ProbeParts, Function], Function]]] = [
            # `save_file` and `save_model` of safetensors, and so `save_pretrained`.
            ("safetensors.torch", "serialize_file", _safetensors),
            # `save` and `load` of PyTorch's distributed checkpoints.
            (f"{distributed}saver", "_save_state_dict", _distributed_save),
            (f"{distributed}loader", "_load_state_dict", _distributed_load),
        ]

    def look(self) -> None:
        """Wrap the functions of modules that the script has imported since."""
        if not self._has_reader and any(each in sys.modules for each in _READERS):
            self._has_reader = True
            self._parts.script_calls.resuming.reader_found()
        for each in [each for each in self._waiting if each[0] in sys.modules]:
            module, name, wrap = each
            # Without a call of the module's `__getattr__`. A module that is being imported has no function yet.
            owner = sys.modules[module]
            if callable(getattr(owner, "__dict__", {}).get(name)):
                self._waiting.remove(each)
                self._parts.hooks.patch(owner, name, functools.partial(wrap, self._parts))


def _safetensors(parts: ProbeParts, original: Function) -> Function:
    @functools.wraps(original)
    def serialize_file(*args: Any, **kwargs: Any) -> Any:
        # This function gets bytes. Its caller, `save_file(tensors, filename)`, has what they are of.
        tensors = sys._getframe(1).f_locals.get("tensors")  # noqa: SLF001 - what `inspect.currentframe` is
        file = args[1] if len(args) > 1 else kwargs.get("filename")
        return _saving(parts, original, tensors, file, args, kwargs)

    return leave_to_python(hide(serialize_file))


def _distributed_save(parts: ProbeParts, original: Function) -> Function:
    @functools.wraps(original)
    def _save_state_dict(*args: Any, **kwargs: Any) -> Any:
        saved, writer = _first(args, kwargs, "storage_writer")
        return _saving(parts, original, saved, getattr(writer, "path", None), args, kwargs)

    return leave_to_python(hide(_save_state_dict))


def _saving(parts: ProbeParts, original: Function, saved: Any, file: Any, args: Any, kwargs: Any) -> Any:
    hooks = parts.hooks
    is_noted = hooks.active and isinstance(saved, Mapping)
    if is_noted:
        hooks.run(_PART, parts.on_save_pre, saved, file, True)
    try:
        return original(*args, **kwargs)
    except BaseException as error:
        hooks.passes(error)
        raise
    finally:
        if is_noted and hooks.active:
            hooks.run(_PART, parts.on_save_post)


def _distributed_load(parts: ProbeParts, original: Function) -> Function:
    hooks = parts.hooks

    @functools.wraps(original)
    def _load_state_dict(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            hooks.passes(error)
            raise
        # The values are in the dictionary that was given.
        loaded, reader = _first(args, kwargs, "storage_reader")
        if isinstance(loaded, Mapping) and hooks.active and hooks.thread in (None, get_ident()):
            read = functools.partial(parts.script_calls.loaded, in_place=True)
            hooks.guard(_PART, read, loaded, getattr(reader, "path", None))
        return result

    return leave_to_python(hide(_load_state_dict))


def _first(args: tuple[Any, ...], kwargs: Mapping[str, Any], second: str) -> tuple[Any, Any]:
    """Return the state that a function is called with, and what writes or reads it."""
    state = args[0] if args else kwargs.get("state_dict")
    return state, args[1] if len(args) > 1 else kwargs.get(second)
