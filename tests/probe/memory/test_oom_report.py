"""What is told and written when an allocation fails: against arithmetic, and with nothing of the script's kept."""

from __future__ import annotations

import errno
import gc
import re
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
import torch._dynamo
from helpers.watched import CountingAllocator, Watched, watched
from torch import Tensor, nn

from gradtui.probe.gradients import grad_norms
from gradtui.probe.memory import oom_report, storage_owners
from gradtui.probe.memory.oom_report import MAX_FILES
from gradtui.probe.model import running_module
from gradtui.protocol.events import OutOfMemory
from gradtui.protocol.vocabulary import Phase
from gradtui.system.run_files import RunFiles

F32 = 4
WIDTH, BATCH = 32, 256
TOO_MUCH = 1 << 60


class Greedy(nn.Module):
    """Fails on demand, after it has computed something; `seen` is what the failing forward held."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("table", torch.zeros(100))
        self.fails = False
        self.seen: weakref.ref[Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.fc(x))
        if self.fails:
            self.seen = weakref.ref(y)
            torch.empty(TOO_MUCH // F32)
        return y


def greedy_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), Greedy())


@contextmanager
def boxed(tmp_path: Path, write: Callable[..., str] | None = None, **options: Any) -> Iterator[Watched]:
    files = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)})
    with watched(write_file=write or files.write, **options) as seen:
        yield seen


def boxes(seen: Watched) -> list[OutOfMemory]:
    return seen.all(OutOfMemory)


def train(net: nn.Sequential, optimizer: torch.optim.Optimizer, x: Tensor, steps: int) -> None:
    for _ in range(steps):
        net(x).square().mean().backward()
        optimizer.step()


def fail(net: nn.Sequential, x: Tensor) -> None:
    """A forward that fails, and whose error the script catches."""
    net[2].fails = True
    with suppress(RuntimeError):
        net(x)
    net[2].fails = False


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["examined", "unexamined"])
def test_who_held_what_equals_arithmetic(tmp_path: Path, budget: float) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    optimizer = torch.optim.Adam(net.parameters())
    # The first steps are examined whatever they cost; steps that are only marked come after them.
    steps = 4 if budget else 60
    with boxed(tmp_path, budget=budget) as seen:
        train(net, optimizer, x, steps)
        fail(net, x)
    (box,) = boxes(seen)
    size = sum(parameter.nbytes for parameter in net.parameters())
    held = dict(box.categories)
    assert (held["parameters"], held["gradients"], held["buffers"]) == (size, size, 100 * F32)
    # Two moments, and a step counter for each of the four tensors.
    assert held["optimizer_state"] == 2 * size + 4 * F32
    # The input, the first layer's output (GELU keeps it), GELU's output and what tanh returned.
    assert held["activations"] == 4 * BATCH * WIDTH * F32
    assert (box.step, box.phase, box.module, box.number) == (steps, Phase.FORWARD, "2", 1)
    assert (box.device, box.requested, box.total) == ("cpu", TOO_MUCH, CountingAllocator().total)
    assert box.whole


LARGE = 8192
"""Rows of a batch whose activations are larger than what other tests may have left behind."""


def test_the_largest_storages_have_the_right_owners(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(LARGE, WIDTH)
    net.register_parameter("big", nn.Parameter(torch.zeros(1000, 1000)))
    net[2].table = torch.zeros(500_000)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    held_by_script = torch.zeros(300_000)
    with boxed(tmp_path) as seen:
        for _ in range(3):
            (net(x).sum() + net.big.sum()).backward()
            optimizer.step()
        fail(net, x)
    (box,) = boxes(seen)
    owners = [(storage.owner, storage.bytes) for storage in box.largest]
    assert {
        ("big", 4_000_000),
        ("gradient of big", 4_000_000),
        ("optimizer state of big (momentum_buffer)", 4_000_000),
        ("2.table", 2_000_000),
        ("not known", held_by_script.nbytes),
        ("saved for backward in 2 (TanhBackward0)", LARGE * WIDTH * F32),
    } <= set(owners)
    assert owners[0][1] == 4_000_000
    assert len(box.largest) <= 20


def test_between_samples_parameters_tell_where_something_was_saved(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with boxed(tmp_path, budget=0.0) as seen:
        train(net, optimizer, x, 60)
        assert seen.probe.step_sampler.sampled_step is None
        fail(net, torch.ones(LARGE, WIDTH))
    named = {storage.owner for storage in boxes(seen)[0].largest}
    assert "saved for backward in 2.fc (AddmmBackward0)" in named
    assert "saved for backward by TanhBackward0 after 2.fc" in named


def test_the_file_is_the_event_in_words(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path) as seen:
        train(net, torch.optim.Adam(net.parameters()), x, 3)
        fail(net, x)
    (box,) = boxes(seen)
    assert box.file is not None
    path = Path(box.file)
    assert path.parent == tmp_path / "gradtui"
    assert path.stat().st_mode & 0o077 == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith("CPU out of memory in 2 (forward)\n")
    for name, size in box.categories:
        assert re.search(rf"^  {name.replace('_', ' ')} +{size:,} B", text, flags=re.MULTILINE), name
    (entry,) = [entry for entry in seen.state.log if entry.kind == "out of memory"]
    assert entry.text.startswith("CPU out of memory in 2 ")
    assert entry.text.endswith(f"written to {box.file}")


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    gc.collect()
    gc.disable()
    try:
        with boxed(tmp_path) as seen:
            train(net, torch.optim.SGD(net.parameters(), lr=0.1), x, 2)
            fail(net, x)
            assert len(boxes(seen)) == 1
            assert net[2].seen is not None
            assert net[2].seen() is None, "the error is gone, and so must be what its frames held"
    finally:
        gc.enable()


def test_frames_can_be_cleared_while_the_error_lives(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path):
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), x, 2)
        net[2].fails = True
        with pytest.raises(RuntimeError) as caught:
            net(x)
        assert net[2].seen() is not None
        traceback.clear_frames(caught.tb)
        assert net[2].seen() is None


def test_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def run() -> list[bytes]:
        net, x = greedy_model(), torch.ones(BATCH, WIDTH)
        optimizer = torch.optim.Adam(net.parameters())
        train(net, optimizer, x, 3)
        fail(net, x)
        train(net, optimizer, x[:8], 3)
        return [parameter.detach().numpy().tobytes() for parameter in net.parameters()]

    alone = run()
    with boxed(tmp_path) as seen:
        assert run() == alone
    assert len(boxes(seen)) == 1
    assert seen.state.step == 6


def test_a_backward_that_fails(tmp_path: Path) -> None:
    class Explodes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return torch.empty(TOO_MUCH // F32)

    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path) as seen, pytest.raises(RuntimeError, match="allocate memory"):
        Explodes.apply(net(x)).sum().backward()
    (box,) = boxes(seen)
    assert (box.phase, box.module, box.requested) == (Phase.BACKWARD, None, TOO_MUCH)


def test_one_error_is_told_once_wherever_it_passes(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path) as seen:
        net[2].fails = True
        optimizer = torch.optim.LBFGS(net.parameters())
        with pytest.raises(RuntimeError) as caught:
            optimizer.step(lambda: net(x).sum())
        ending = ValueError("gave up")
        ending.__cause__ = caught.value
        # As the runner does with what ends the script.
        seen.probe.hooks.passes(ending)
    assert len(boxes(seen)) == 1
    assert vars(caught.value) == vars(ending) == {}


def test_error_of_scripts_raised_from_one_is_one(tmp_path: Path) -> None:
    with boxed(tmp_path) as seen:
        try:
            raise ValueError("batch too large") from MemoryError("no room")
        except ValueError as error:
            seen.probe.hooks.passes(error)
    (box,) = boxes(seen)
    assert (box.message, box.phase, box.module) == ("no room", Phase.LOAD, None)


def test_few_of_many_are_told_and_written(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(2, WIDTH)
    with boxed(tmp_path) as seen:
        for _ in range(40):
            fail(net, x)
    found = boxes(seen)
    assert [box.number for box in found] == [*range(1, MAX_FILES + 1), 8, 16, 32]
    assert [box.file is not None for box in found] == [True] * MAX_FILES + [False] * 3
    assert len(list((tmp_path / "gradtui").iterdir())) == MAX_FILES
    assert "failure 32 of this run" in seen.state.log[-1].text


def test_fatal_failure_is_looked_at_after_many(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(2, WIDTH)
    with boxed(tmp_path) as seen:
        for _ in range(MAX_FILES + 1):
            fail(net, x)
        net[2].fails = True
        with pytest.raises(RuntimeError) as caught:
            net(x)
        assert len(boxes(seen)) == MAX_FILES
        for _ in range(2):
            seen.probe.hooks.passes(caught.value, ends=True)
    last = boxes(seen)[-1]
    assert len(boxes(seen)) == MAX_FILES + 1
    assert (last.number, last.module) == (MAX_FILES + 2, "2")
    assert last.categories
    assert last.file is not None


def test_a_full_disk_costs_one_line(tmp_path: Path) -> None:
    def full(kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path, write=full) as seen:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        train(net, optimizer, x, 2)
        fail(net, x)
        train(net, optimizer, x, 1)
    (box,) = boxes(seen)
    assert (box.file, box.trouble) == (None, "No space left on device")
    assert dict(box.categories)["parameters"] > 0
    assert seen.state.log[-1].text.endswith(": No space left on device")
    assert seen.state.step == 3


def test_failure_of_our_own_leaves_scripts_error_alone(tmp_path: Path) -> None:
    def broken(kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        raise ZeroDivisionError

    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path, write=broken, may_fail=True) as seen:
        net[2].fails = True
        with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
            net(x)
    assert list(seen.state.problems) == ["out-of-memory report"]


def test_failing_thread_need_not_be_training_one(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path) as seen:
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), x, 2)
        other = threading.Thread(target=fail, args=(net, x))
        other.start()
        other.join()
    (box,) = boxes(seen)
    assert (box.module, dict(box.categories)["buffers"]) == ("2", 100 * F32)


@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="compiled code misses a changed flag with Python 3.13.0")
def test_within_compiled_model_nothing_is_compiled_for_it(tmp_path: Path) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)

    def compiled_for_the_last_step() -> int:
        torch._dynamo.reset()
        compiled: nn.Module = torch.compile(net, backend="eager")  # type: ignore[assignment]
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            net[2].fails = step == 2
            with pytest.raises(RuntimeError, match="allocate memory") if step == 2 else nullcontext():
                compiled(x).sum().backward()
                optimizer.step()
                before: int = torch._dynamo.utils.counters["frames"]["total"]
        after: int = torch._dynamo.utils.counters["frames"]["total"]
        return after - before

    try:
        # The forward with another flag is compiled anew, by some versions of torch in parts: its module is known there.
        alone = compiled_for_the_last_step()
        with boxed(tmp_path) as seen:
            assert compiled_for_the_last_step() == alone
        (box,) = boxes(seen)
        assert (box.phase, box.module) == (Phase.FORWARD, "" if alone <= 1 else "2")
        assert dict(box.categories)["parameters"] == sum(parameter.nbytes for parameter in net.parameters())
    finally:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


def test_a_look_at_a_crowd_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_owners.find, "__kwdefaults__", {"seconds": 0.0})
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path) as seen:
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), x, 2)
        fail(net, x)
    (box,) = boxes(seen)
    assert not box.whole
    assert dict(box.categories)["parameters"] == sum(parameter.nbytes for parameter in net.parameters())


def test_no_room_even_for_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room() -> list[object]:
        raise MemoryError

    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path) as seen:
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), x, 2)
        monkeypatch.setattr(gc, "get_objects", no_room)
        fail(net, x)
        monkeypatch.undo()
    (box,) = boxes(seen)
    assert not box.whole
    assert dict(box.categories)["gradients"] == sum(parameter.nbytes for parameter in net.parameters())


def test_the_private_names_are_there() -> None:
    assert callable(torch.cuda._lazy_call)
    assert callable(torch.cuda.memory._snapshot)
    assert running_module._CALL_CODE is not None


# CUDA, by a fake of the private entry with its real signature


class FakeCuda:
    def __init__(self) -> None:
        self.observers: list[Callable[[int, int, int, int], None]] = []

    def attach(self, observer: Callable[[int, int, int, int], None]) -> None:
        self.observers.append(observer)

    def fail(self, requested: int) -> None:
        """As CUDACachingAllocator::malloc: first the observers, then the exception."""
        for observer in self.observers:
            # (device, alloc, device_alloc, device_free), four integers and no names
            observer(1, requested, 16 << 30, 1 << 20)
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 16 GiB"
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", fake.attach, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda function: function())
    monkeypatch.setattr(oom_report, "_observe", oom_report._observe.__wrapped__)
    return fake


def test_observer_tells_before_anything_is_raised_and_once(tmp_path: Path, cuda: FakeCuda) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    kept: list[weakref.ref[Tensor]] = []

    class Hungry(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            kept.append(weakref.ref(y))
            # What torch itself catches, as cuDNN does where it tries one algorithm after the other.
            with suppress(torch.OutOfMemoryError):
                cuda.fail(20 << 20)
            del y
            assert kept[-1]() is None, "looking at a running frame must not keep its locals"
            return x

    net.append(Hungry())
    with boxed(tmp_path) as seen:
        assert len(cuda.observers) == 1
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), x, 2)
        first, second = boxes(seen)
        assert (first.device, first.requested, first.phase, first.module) == ("cuda:1", 20 << 20, Phase.FORWARD, "3")
        assert dict(first.categories)["parameters"] == 0, "the bytes are those on the device, and there are none"
        assert (first.number, second.number) == (1, 2)
    with suppress(torch.OutOfMemoryError):
        cuda.fail(1)
    assert len(boxes(seen)) == 2, "the run is over"


def test_observed_failure_is_not_told_again_when_raised(tmp_path: Path, cuda: FakeCuda) -> None:
    class Hungry(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            cuda.fail(20 << 20)
            return x

    net = nn.Sequential(nn.Linear(2, 2), Hungry())
    with boxed(tmp_path) as seen:
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                net(torch.ones(1, 2))
    assert [box.requested for box in boxes(seen)] == [20 << 20, 20 << 20]


def test_own_lack_of_memory_is_not_of_script(tmp_path: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """In hooks, and in what wrappers call directly: torch's clipping functions, and a report between two steps."""

    def greedy(gradients: object) -> None:
        cuda.fail(20 << 20)

    monkeypatch.setattr(grad_norms, "_norms", greedy)
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)
    with boxed(tmp_path, may_fail=True) as seen:
        net(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        net(x)
        seen.probe.report()
        seen.probe.hooks.guard("a wrapper", greedy, None)
    assert boxes(seen) == []
    assert seen.state.problems


def test_in_backward_parameter_of_operation_tells_module(tmp_path: Path, cuda: FakeCuda) -> None:
    net, x = greedy_model(), torch.ones(BATCH, WIDTH)

    class Hungry(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Tensor) -> Tensor:
            return weight.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            with suppress(torch.OutOfMemoryError):
                cuda.fail(1 << 20)
            return gradient

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with boxed(tmp_path, budget=0.0) as seen:
        train(net, optimizer, x, 60)
        (net(x).sum() + Hungry.apply(net[2].fc.weight).sum()).backward()
    (box,) = boxes(seen)
    assert (box.phase, box.module) == (Phase.BACKWARD, "2.fc")


def test_without_the_private_entry_the_exception_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_cuda_attach_out_of_memory_observer", raising=False)
    monkeypatch.setattr(oom_report, "_observe", oom_report._observe.__wrapped__)
    with boxed(tmp_path) as seen:
        seen.probe.hooks.passes(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"))
    (box,) = boxes(seen)
    assert (box.device, box.requested) == ("cuda:0", 20 << 20)


def test_an_allocator_without_observers_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(observer: object) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", refuse, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda function: function())
    monkeypatch.setattr(oom_report, "_observe", oom_report._observe.__wrapped__)
    with boxed(tmp_path) as seen:
        train(greedy_model(), torch.optim.SGD([torch.zeros(1)], lr=0.1), torch.ones(1, WIDTH), 1)
    assert boxes(seen) == []
