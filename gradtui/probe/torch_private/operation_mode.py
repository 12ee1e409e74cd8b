"""A mode that is shown every tensor operation of a thread, and can be left safely. Everything private about such modes is here.

Public in practice (`torch.utils._python_dispatch` is what PyTorch's own documentation tells users to import), private by name.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from types import TracebackType
from typing import Any

from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from gradtui import call_depth
from gradtui.call_depth import LEAVE_OUT

_ROOM = 20 * LEAVE_OUT
"""An operation that is shown takes this many calls at most, where torch's own C++ code would take none."""


class OperationMode(TorchDispatchMode):
    """Subclasses define `__torch_dispatch__(self, func, types, args, kwargs)` and return what `func(*args, **kwargs)` does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # not annotated in torch
        self.is_on = False
        """Whether the mode is entered."""
        self._calls = call_depth.of_main_thread()
        self._count = self._calls.spare

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first operation would import dynamo into the script's process, which takes a second.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """A compiled region stays compiled, and is one operation."""
        return True

    def enter(self) -> None:
        """Be shown what this thread does from here on."""
        if not self.is_on:
            self.__enter__()  # type: ignore[no-untyped-call]  # not annotated in torch
            self.is_on = True
            self._count = self._calls.cell if get_ident() == self._calls.thread else self._calls.spare
            self._count[0] += _ROOM

    def leave(self) -> bool:
        """Be shown no more; False if the script has put a mode of its own on top and not taken it off, which is left alone."""
        if not self.is_on:
            return True
        if _get_current_dispatch_mode() is not self:
            return False
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # not annotated in torch
        self.is_on = False
        self._count[0] -= _ROOM
        return True


def below_operator_call(trace: TracebackType | None) -> TracebackType | None:
    """What a traceback that begins in a mode's `__torch_dispatch__` has below the frame that calls the operator."""
    below = trace.tb_next if trace is not None else None
    while below is not None and below.tb_frame.f_code in _OPERATOR_CALLS:
        below = below.tb_next
    return below


_OPERATOR_CALLS = {
    call.__code__ for kind in (OpOverload, OpOverloadPacket) if (call := kind.__call__) and hasattr(call, "__code__")
}


def something_is_compiled() -> bool:
    """Whether dynamo has compiled anything so far: a mode would have it fall back or compile anew."""
    counters: dict[str, Any] = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))
