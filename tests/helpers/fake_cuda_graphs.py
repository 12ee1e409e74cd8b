"""What torch's CUDA functions do around events and graphs, without a device: what a capture forbids raises an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from gradtui.probe.gradients import grad_norms, grad_scalers
from gradtui.probe.torch_private.host_copy import HostCopy


class FakeCuda:
    """A device on which a graph may be captured; its readings arrive while `is_finished`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.captures = False
        self.is_finished = True
        self.is_behind = False
        """Whether its stream has operations that have not run."""
        self.queries = 0
        self.clock_ms = 0.0
        """What timing events record."""
        self.events = 0
        """Timing events that were created."""
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.captures)
        patch.setattr(torch.cuda, "CUDAGraph", self._graph_class())
        patch.setattr(torch.cuda, "Event", self._timing_event)
        patch.setattr(
            torch.cuda, "current_stream", lambda device=None: SimpleNamespace(query=lambda: not self.is_behind)
        )
        for module in (grad_norms, grad_scalers):
            patch.setattr(module, "HostCopy", self._copy_class())

    @contextmanager
    def graph(self, graph: FakeGraph) -> Iterator[None]:
        """As `torch.cuda.graph`."""
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()

    def query(self) -> bool:
        """As `cudaEventQuery`."""
        self.queries += 1
        if self.captures:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return self.is_finished

    def _timing_event(self, *, enable_timing: bool = False) -> FakeEvent:
        self.events += enable_timing
        return FakeEvent(self, enable_timing)

    def _graph_class(self) -> type[FakeGraph]:
        device = self

        class Graph(FakeGraph):
            def capture_begin(self) -> None:
                device.captures = True

            def capture_end(self) -> None:
                device.captures = False

        return Graph

    def _copy_class(self) -> type[HostCopy]:
        device = self

        class Event:
            query = staticmethod(device.query)
            synchronize = staticmethod(device.query)

        class Copy(HostCopy):
            def __init__(self, values: torch.Tensor) -> None:
                super().__init__(values.clone())
                if device.captures:
                    raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
                self._done = Event()  # type: ignore[assignment]

        return Copy


class FakeEvent:
    """As `torch.cuda.Event`."""

    def __init__(self, device: FakeCuda, enable_timing: bool) -> None:
        self._device = device
        self._is_timing = enable_timing
        self._at_ms: float | None = None

    def record(self, stream: object = None) -> None:
        if self._device.captures:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self._at_ms = self._device.clock_ms

    def query(self) -> bool:
        return self._device.query()

    def synchronize(self) -> None:
        raise AssertionError("nothing waits for the device")

    def elapsed_time(self, end: FakeEvent) -> float:
        if not (self._is_timing and end._is_timing and self._device.is_finished):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        assert self._at_ms is not None
        assert end._at_ms is not None
        return end._at_ms - self._at_ms


class FakeGraph:
    """As `torch.cuda.CUDAGraph`: `work` is run by each replay."""

    work: Callable[[], None] = staticmethod(lambda: None)

    def capture_begin(self) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None:
        self.work()
