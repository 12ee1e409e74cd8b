"""Track the script's CUDA graphs. A captured step runs, and counts, at each replay of its graph.

The wrappers are installed on `torch.cuda.CUDAGraph`, which `torch.cuda.graph`, `make_graphed_callables` and inductor use.
Everything but `open_captures` runs on the training thread. Checked on a simulated device only.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gradtui.own_frames import hide
from gradtui.probe.runtime import HookSet
from gradtui.probe.torch_private.cuda import open_captures
from gradtui.probe.torch_private.dynamo_frames import leave_to_python


@dataclass
class CapturedWork:
    """The work of one replay of a graph."""

    backwards: int = 0
    optimizers: list[int] = field(default_factory=list)
    """Indexes of the optimizers whose steps the graph contains, in order."""


class CudaGraphs:
    """Records what the script's graphs contain.

    `replaying` is called with the time before each replay of a graph that contains a backward or a step; `replayed` is
    called with the time and the work after it.
    """

    def __init__(self, replaying: Callable[[int], None], replayed: Callable[[int, CapturedWork], None]) -> None:
        self.capture: CapturedWork | None = None
        """The work captured so far into the graph that is being captured; None while no capture runs."""
        self.replaying = replaying
        self.replayed = replayed
        self.work: weakref.WeakKeyDictionary[Any, CapturedWork] = weakref.WeakKeyDictionary()
        """The work of each graph that contains a backward or a step."""

    def capture_began(self, now: int) -> None:  # noqa: ARG002 - as every callback of a hook
        """Handle the start of a capture."""
        self.capture = CapturedWork()

    def capture_ended(self, now: int, graph: Any) -> None:  # noqa: ARG002
        """Handle the end or the failure of a capture."""
        captured, self.capture = self.capture, None
        if captured is not None and captured != CapturedWork():
            self.work[graph] = captured


def install(hooks: HookSet, graphs: CudaGraphs) -> None:
    """Patch the methods that capture and replay; `hooks.remove()` removes the wrappers."""
    kind = torch.cuda.CUDAGraph
    for name, wrap in (("capture_begin", _begin), ("capture_end", _end), ("replay", _replay)):
        if hasattr(kind, name):
            hooks.patch(kind, name, functools.partial(wrap, hooks, graphs))


def _begin(hooks: HookSet, graphs: CudaGraphs, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not hooks.active:
            return original(self, *args, **kwargs)
        hooks.run("cuda graphs", graphs.capture_began)
        open_captures.add(self)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            open_captures.discard(self)
            graphs.capture = None
            hooks.passes(error)
            raise

    return leave_to_python(hide(capture_begin))


def _end(hooks: HookSet, graphs: CudaGraphs, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            graphs.capture = None
            hooks.passes(error)
            raise
        finally:
            open_captures.discard(self)
            if hooks.active:
                hooks.run("cuda graphs", graphs.capture_ended, self)

    return leave_to_python(hide(capture_end))


def _replay(hooks: HookSet, graphs: CudaGraphs, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Compiled code replays graphs too, several in each step. Those contain no optimizer step.
        captured = graphs.work.get(self) if graphs.work and hooks.active else None
        if captured is None:
            return original(self, *args, **kwargs)
        try:
            hooks.run("cuda graphs", graphs.replaying)
            result = original(self, *args, **kwargs)
            hooks.run("cuda graphs", graphs.replayed, captured)
        except BaseException as error:
            hooks.passes(error)
            raise
        return result

    return leave_to_python(hide(replay))
