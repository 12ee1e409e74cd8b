"""Detect which frames dynamo compiles, and exclude gradtui's. All private names for this are in this file.

Dynamo examines every Python frame that is called while a compiled region of the script runs, and compiles it separately. It
skips torch's own frames by their file; the functions here make it skip gradtui's. Imports no dynamo, which takes most of a
second.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from gradtui.system.own_frames import hide

F = TypeVar("F", bound=Callable[..., Any])

_VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
NOTICES_FLAGS = _VERSION >= (2, 13)
"""Whether a model is compiled anew when `requires_grad` of its parameters changes. torch 2.6, 2.7, 2.8 and 2.10 go on with the
code that they have, which computes no gradient of what was frozen when it was made."""

_eval_frame: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)  # noqa: SLF001 - what this file is for


def leave_to_python(function: F) -> F:
    """Return the function, which dynamo runs as it is, without a graph break in the script's code that calls it.

    The attribute keeps dynamo from tracing into the function from its caller. The strategy keeps it from compiling the
    function's own frame while a compiled region of the script is running.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001 - dynamo's own mark
    return leave_frame_to_python(function)


def leave_all_to_python(function: F) -> F:
    """Return the function as `leave_to_python` does, or one that calls it: dynamo compiles no frame below it either."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001 - the same
    return leave_frame_to_python(function, and_all_it_calls=True)


def leave_frame_to_python(function: F, *, and_all_it_calls: bool = False) -> F:
    """Return the function, at whose frames dynamo starts no compilation. Its callers are still traced into it.

    torch does the same with its own call of a module: where a graph breaks within a model, dynamo would otherwise first try
    the frame of the call around it, and break as well. With `and_all_it_calls` and a torch before 2.8 it is another function.
    """
    set_strategy = getattr(_eval_frame, "set_code_exec_strategy", None)
    if set_strategy is not None:
        action = _eval_frame._FrameAction  # noqa: SLF001 - torch's, see above
        below = action.SKIP if and_all_it_calls else action.DEFAULT
        set_strategy(function.__code__, _eval_frame._FrameExecStrategy(action.SKIP, below))  # noqa: SLF001 - the same
    elif hasattr(_eval_frame, "skip_code"):
        if and_all_it_calls:
            function = _without_dynamo(function, _eval_frame.set_eval_frame)
        _eval_frame.skip_code(function.__code__)
    return function


def _without_dynamo(function: F, exchange: Callable[[Any], Any]) -> F:
    """Return a function that takes the callback away while this one runs. torch before 2.8 cannot skip what a frame calls."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        callback = exchange(None)
        try:
            return function(*args, **kwargs)
        finally:
            exchange(callback)

    return hide(call)  # type: ignore[return-value]  # it is called as the function is


def _what_compiles(exchange: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return a function that takes the callback away and gives it back: the exchange counts its references."""

    def what_compiles() -> Any:
        now = exchange(None)
        if now is not None:
            exchange(now)
        return now

    return leave_frame_to_python(what_compiles)


what_compiles: Callable[[], Any]
"""Returns what compiles the frames that are called from here, as dynamo does below a graph break: None where nothing does,
False where only previously compiled code runs. It takes 50 ns. It is in C, since dynamo would compile a Python function.
Before torch 2.8 it is one that dynamo leaves alone, and takes longer: torch 2.4 has no such function, and that of 2.6 and 2.7
does not count the reference that it returns, so that each call would free it, or None, a bit."""
if _VERSION >= (2, 8):
    what_compiles = getattr(_eval_frame, "get_eval_frame_callback", lambda: None)
else:
    what_compiles = _what_compiles(_eval_frame.set_eval_frame) if _eval_frame is not None else lambda: None
