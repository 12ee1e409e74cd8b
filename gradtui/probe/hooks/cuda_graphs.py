"""Wrap the script's CUDA graphs. A captured step runs, and counts, at each replay of its graph.

The wrappers are installed on `torch.cuda.CUDAGraph`, which `torch.cuda.graph`, `make_graphed_callables` and inductor use.
Everything but `open_captures` runs on the training thread. Checked on a simulated device only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gradtui.probe.runtime import HookSet
from gradtui.probe.steps import CudaGraphs
from gradtui.probe.torch_private.cuda import open_captures
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.system.own_frames import hide


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
        try:
            if captured is not None:
                hooks.run("cuda graphs", graphs.replaying)
            result = original(self, *args, **kwargs)
            if captured is not None:
                hooks.run("cuda graphs", graphs.replayed, captured)
        except BaseException as error:
            hooks.passes(error)
            raise
        return result

    return leave_to_python(hide(replay))
