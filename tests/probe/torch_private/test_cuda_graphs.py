"""CUDA graphs of the script, with a stand-in for the device: nothing of ours disturbs a capture, and replays are steps."""

from __future__ import annotations

import pytest
import torch
from helpers.fake_cuda_graphs import FakeCuda
from helpers.training import square_step
from helpers.watched import ScriptedCommands, watched
from torch import nn

from gradtui.probe.torch_private.cuda import is_capturing, open_captures
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.commands import Pause, Resume, SetTrainable
from gradtui.protocol.events import CommandApplied, CommandRejected, GradientsMeasured, PauseChanged
from gradtui.run.state.selectors import newest_loss

X = torch.linspace(-1, 1, 12).view(3, 4)


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        square_step(self.model, self.optimizer, X)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.mark.usefixtures("as_on_a_device")
def test_reading_is_not_asked_during_capture(cuda: FakeCuda) -> None:
    with watched() as seen:
        training = Training()
        cuda.is_finished = False
        for _ in range(3):
            training.step()
        queries = cuda.queries
        assert queries > 0
        with cuda.graph(torch.cuda.CUDAGraph()):
            training.step()
            assert cuda.queries == queries
        cuda.is_finished = True
        training.step()
    told = [event.step for event in seen.all(GradientsMeasured) if event.total is not None]
    assert told == [1, 2, 3, 4], "nothing of the captured step, which has not run"


def test_events_are_not_asked_during_other_capture(cuda: FakeCuda) -> None:
    """In its default mode a capture forbids it on every thread and stream."""
    copy = HostCopy(torch.ones(1))
    copy._done = type("Event", (), {"query": lambda self: True, "synchronize": lambda self: None})()
    graph = torch.cuda.CUDAGraph()
    with watched(), cuda.graph(graph):
        cuda.captures = False  # of the stream that is current here
        assert is_capturing()
        assert not copy.is_there
    assert not is_capturing()
    assert copy.is_there


def test_a_capture_that_cannot_begin_is_over(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(graph: object) -> None:
        raise RuntimeError("capture must be on a non-default stream")

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", refuses)
    with watched() as seen:
        with pytest.raises(RuntimeError, match="non-default"):
            torch.cuda.CUDAGraph().capture_begin()
        assert not open_captures
        Training().step()
    assert seen.state.step == 1


@pytest.mark.parametrize("what", ["a capture", "a profiler"])
def test_a_default_device_hides_neither_captures_nor_profilers(cuda: FakeCuda, what: str) -> None:
    with torch.device("cpu"):
        assert not operations_are_observed()
        if what == "a capture":
            cuda.captures = True
            assert operations_are_observed()
        else:
            with torch.autograd.profiler.profile():
                assert operations_are_observed()


@pytest.mark.parametrize("eager", [0, 3, 400])
def test_replays_are_counted_but_not_capture(cuda: FakeCuda, eager: int) -> None:
    """With 400 steps before it most are only marked, and the capture begins among those."""
    with watched(budget=100.0 if eager < 100 else 0.0) as seen:
        training = Training()
        for _ in range(eager):
            training.step()
        graph = torch.cuda.CUDAGraph()
        with cuda.graph(graph):
            training.step()
        assert seen.probe.counter.steps == eager
        for _ in range(10):
            graph.replay()
    assert (seen.state.step, seen.state.micro_steps) == (eager + 10, eager + 10)


@pytest.mark.parametrize("eager", [3, 400])
def test_the_loss_of_replayed_gradients_is_unknown(cuda: FakeCuda, eager: int) -> None:
    with watched(budget=100.0 if eager < 100 else 0.0) as seen:
        training = Training()
        for _ in range(eager):
            training.step()
        graph = torch.cuda.CUDAGraph()
        with cuda.graph(graph):
            training.model(X).square().mean().backward()
        for _ in range(10):
            graph.replay()
            training.optimizer.step()
        seen.probe.report()
        assert [step for step, _ in seen.losses()] == [*range(1, eager + 1)]
        assert newest_loss(seen.state) == (None, None)
        assert [entry.text for entry in seen.state.log if "losses are unknown" in entry.text] != []
        training.step()
    assert seen.losses()[-1][0] == newest_loss(seen.state)[1] == eager + 11


def test_a_graph_without_a_step_counts_as_nothing(cuda: FakeCuda) -> None:
    with watched() as seen:
        training = Training()
        graph = torch.cuda.CUDAGraph()
        with cuda.graph(graph):
            training.model(X)
        training.step()
        graph.replay()
    assert seen.state.step == 1


def test_run_of_so_many_steps_ends_at_replay(cuda: FakeCuda) -> None:
    with watched(stop_after=3) as seen:
        training, graph = Training(), torch.cuda.CUDAGraph()
        with cuda.graph(graph):
            training.step()
        graph.replay()
        graph.replay()
        with pytest.raises(SystemExit):
            graph.replay()
    assert seen.state.step == 3


def test_commands_wait_for_capture_until_replay(cuda: FakeCuda) -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        training, graph = Training(), torch.cuda.CUDAGraph()
        training.step()
        seen.submit(lambda number: SetTrainable(number, "weight", False))
        with cuda.graph(graph):
            training.step()
        assert training.model.weight.requires_grad
        assert not seen.all(CommandApplied)
        seen.submit(Pause)
        for _ in range(2):
            graph.replay()
    (refused,) = seen.all(CommandRejected)
    assert "CUDA graph" in refused.reason
    assert [type(event.command) for event in seen.all(CommandApplied)] == [Pause, Resume]
    assert [event.paused for event in seen.all(PauseChanged)] == [True, False]
    assert seen.state.step == 3
