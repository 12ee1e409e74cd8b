"""Which frames dynamo compiles, and keeping it from ours. Everything private about that is here.

Dynamo looks at every Python frame that is called while a compiled region of the script's runs, and compiles it by
itself. Torch's own are exempt by their file; ours are exempt by what is said here. Imports no dynamo, which takes most
of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_eval_frame: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)  # noqa: SLF001 - what this file is for

CAN_TELL = hasattr(_eval_frame, "get_eval_frame_callback")
"""Whether this version of torch has `what_compiles` tell anything."""

what_compiles: Callable[[], Any] = getattr(_eval_frame, "get_eval_frame_callback", lambda: None)
"""What compiles the frames that are called from here, as dynamo does below a graph break: None where nothing does, False where
only what was compiled before runs. 50 ns; C, since dynamo would compile a function of ours that asks."""


def leave_to_python(function: Callable[..., Any], *, and_all_it_calls: bool = False) -> Callable[..., Any]:
    """Have dynamo run this function as it is, without a graph break in the code of the script's that calls it.

    The attribute keeps dynamo from tracing into the function from its caller, the strategy from compiling the function's own
    frame (or, with `and_all_it_calls`, any frame below it) while a compiled region of the script's is running.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001 - dynamo's own mark
    return leave_frame_to_python(function, and_all_it_calls=and_all_it_calls)


def leave_frame_to_python(function: Callable[..., Any], *, and_all_it_calls: bool = False) -> Callable[..., Any]:
    """Have dynamo not begin with a frame of this function; it is traced into from its callers all the same.

    So torch does with its own call of a module: where a graph breaks within a model, the frame of the call around it would
    else be tried first, and break as well.
    """
    set_strategy = getattr(_eval_frame, "set_code_exec_strategy", None)
    if set_strategy is not None:
        action = _eval_frame._FrameAction  # noqa: SLF001 - torch's, see above
        below = action.SKIP if and_all_it_calls else action.DEFAULT
        set_strategy(function.__code__, _eval_frame._FrameExecStrategy(action.SKIP, below))  # noqa: SLF001 - the same
    elif hasattr(_eval_frame, "skip_code"):
        _eval_frame.skip_code(function.__code__)
    return function
