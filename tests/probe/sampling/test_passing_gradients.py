"""The norms of gradients that flow through frozen modules, and that reading them changes nothing."""

from __future__ import annotations

import gc
import math
import signal
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import methodcaller
from types import SimpleNamespace

import pytest
import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.autograd.profiler import profile
from torch.utils.checkpoint import checkpoint

from gradtui.probe.autograd import ModuleOutputs
from gradtui.probe.runtime import HookSet
from gradtui.probe.sampling import passing_gradients
from gradtui.probe.sampling.passing_gradients import PassingGradients
from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.system.own_frames import PACKAGE_DIRECTORY

WIDTH = 8


class Chain(nn.Module):
    """A layer that trains, frozen blocks, and a frozen head."""

    def __init__(self, *, residual: bool = False, checkpointed: bool | None = None, in_place: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=in_place)) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, 1)
        self.residual, self.checkpointed = residual, checkpointed
        self.outputs: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        self.outputs = []
        for block in self.blocks:
            y = block(x) if self.checkpointed is None else checkpoint(block, x, use_reentrant=self.checkpointed)
            self.outputs.append(y)
            x = x + y if self.residual else y
        self.outputs.append(self.head(x))
        return self.outputs[-1]


def chain(make: Callable[[], Chain] = Chain) -> Chain:
    torch.manual_seed(0)
    model = make()
    model.blocks.requires_grad_(False)
    model.head.requires_grad_(False)
    return model


def batch() -> Tensor:
    return torch.linspace(-1, 1, 4 * WIDTH).view(4, WIDTH)


def squared(output: Tensor) -> Tensor:
    return output.square().mean()


def train(model: Chain, steps: int = 4, backward: Callable[[Tensor], object] = Tensor.backward) -> list[Tensor]:
    """Return the gradients of all steps and the final weights."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    found = []
    for _ in range(steps):
        backward(squared(model(batch())))
        found += [each.grad.clone() for each in model.parameters() if each.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
    return found + [each.detach().clone() for each in model.parameters()]


def passing(run: Watched, which: int = -1) -> dict[str, float]:
    """Return the norms that were read in a sampled step, by path."""
    modules = run.all(ev.ModelsFound)[-1].modules
    norms = run.all(ev.GradientFlowMeasured)[which].passing
    return {module.path: norm for module, norm in zip(modules, norms) if norm is not None}


@pytest.mark.parametrize("residual", [False, True])
def test_the_norms_are_those_of_autograd_grad(residual: bool) -> None:
    model = chain(partial(Chain, residual=residual))
    with watched() as run:
        train(model, 1)
    reference = chain(partial(Chain, residual=residual))
    loss = squared(reference(batch()))
    by_hand = [each.norm().item() for each in torch.autograd.grad(loss, reference.outputs)]
    assert passing(run) == pytest.approx(
        {"blocks.0": by_hand[0], "blocks.1": by_hand[1], "blocks.2": by_hand[2], "head": by_hand[3]}, rel=1e-5
    )


def test_expanded_and_half_precision_gradients_have_their_norms() -> None:
    # The gradient of a sum is one stored element that stands for all: sqrt(4 * 1) for four rows of one output.
    model = chain().to(torch.bfloat16)
    with watched() as run:
        model(batch().to(torch.bfloat16)).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    assert passing(run)["head"] == pytest.approx(2.0)


def test_a_loss_scaler_does_not_show() -> None:
    model = chain()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watched() as run:
        scaler.scale(model(batch()).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert passing(run)["head"] == pytest.approx(2.0)


def test_the_last_backward_of_a_step_counts() -> None:
    model = chain()
    with watched() as run:
        for factor in (5.0, 3.0):
            (model(batch()).sum() * factor).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    assert passing(run)["head"] == pytest.approx(6.0)


def test_a_cut_path_has_no_norm() -> None:
    model = chain()
    model.first.requires_grad_(False)
    model.head.requires_grad_(True)
    with watched() as run:
        train(model, 1)
    assert passing(run) == {}


def test_a_vanishing_gradient_has_the_norm_zero() -> None:
    model = chain()
    nn.init.zeros_(model.head.weight)
    with watched() as run:
        model(batch()).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    assert passing(run) == {"head": pytest.approx(2.0), "blocks.0": 0.0, "blocks.1": 0.0, "blocks.2": 0.0}


def test_a_model_that_trains_wholly_has_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[ModuleOutputs] = []
    monkeypatch.setattr(PassingGradients, "begin", lambda _, outputs, norms: added.append(outputs))
    with watched() as run:
        train(Chain())
    assert run.all(ev.GradientFlowMeasured)
    assert not added


@contextmanager
def saved_on_host() -> Iterator[None]:
    with save_on_cpu():
        yield


@pytest.mark.parametrize(
    ("make", "around"),
    [
        (Chain, nullcontext),
        (partial(Chain, residual=True), nullcontext),
        (partial(Chain, residual=True, in_place=True), nullcontext),
        (partial(Chain, checkpointed=False), nullcontext),
        (partial(Chain, checkpointed=True), nullcontext),
        (partial(Chain, residual=True), torch.autograd.detect_anomaly),
        (partial(Chain, residual=True), saved_on_host),
    ],
    ids=["chain", "residual", "in-place", "checkpoint", "reentrant", "anomaly", "save-on-cpu"],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_every_bit_is_that_of_plain_python(make: Callable[[], Chain], around: Callable[[], object]) -> None:
    with around():  # type: ignore[attr-defined]
        plain = train(chain(make))
        with watched() as run:
            seen = train(chain(make))
    assert passing(run).keys() >= {"head"}
    assert all(map(torch.equal, plain, seen))
    assert len(plain) == len(seen)


@pytest.mark.parametrize("keywords", [{"retain_graph": True}, {"create_graph": True}])
@pytest.mark.filterwarnings("ignore:Using backward")
def test_graph_that_is_kept_gives_same_again(keywords: dict[str, bool]) -> None:
    def twice(loss: Tensor) -> None:
        loss.backward(**keywords)
        loss.backward()

    plain = train(chain(), backward=twice)
    with watched() as run:
        seen = train(chain(), backward=twice)
    assert passing(run).keys() >= {"head"}
    assert all(map(torch.equal, plain, seen))


def test_hooks_of_script_come_first_and_see_same() -> None:
    def halving(model: Chain) -> list[float]:
        seen: list[float] = []

        def halve(gradient: Tensor) -> Tensor:
            seen.append(gradient.norm().item())
            return gradient / 2

        output = model(batch())
        model.outputs[1].register_hook(halve)
        output.sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        return seen

    plain = halving(chain())
    with watched() as run:
        seen = halving(chain())
    assert seen == plain
    assert passing(run)["blocks.1"] == pytest.approx(plain[0] / 2)


@pytest.mark.parametrize("residual", [False, True])
def test_autograd_accumulates_in_place_as_ever(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_gradients, "operations_are_observed", lambda: False)

    def operations(*, hooked: bool) -> Counter[str]:
        model = chain(partial(Chain, residual=residual))
        loss = squared(model(batch()))
        reader = PassingGradients(HookSet(lambda *_: None))
        if hooked:
            outputs = ModuleOutputs({0}, (-1,))
            for each in model.outputs:
                outputs.add(each.grad_fn, 0, 0, -1)
            reader.begin(outputs, {})
        with profile() as profiler:
            loss.backward()
        reader.end()
        return Counter(event.name for event in profiler.function_events)

    plain, seen = operations(hooked=False), operations(hooked=True)
    assert plain["aten::linalg_vector_norm"] == 0
    assert seen["aten::linalg_vector_norm"] == len(chain().blocks) + 1
    for name in ("aten::add", "aten::add_", "aten::clone", "aten::copy_"):
        assert seen[name] == plain[name]
    assert (plain["aten::add_"] > 0) == residual


class Mark:
    """Lives as long as the operation that has it in its metadata."""


def test_nothing_is_kept_alive() -> None:
    model = chain()
    with watched() as run:
        train(model, 2)
        outputs = [weakref.ref(each) for each in model.outputs]
        marks = [Mark() for _ in model.outputs]
        graphs = [weakref.ref(mark) for mark in marks]
        for output, mark in zip(model.outputs, marks):
            output.grad_fn.metadata["mark"] = mark  # type: ignore[union-attr]
        del output, mark, marks
        model.outputs.clear()
        gc.collect()
        assert not any(each() is not None for each in (*outputs, *graphs))
    assert passing(run)


class AlarmError(Exception):
    """What a script's signal handler raises to end a step."""


def alarm(*_: object) -> None:
    raise AlarmError


def test_error_of_signal_handler_awaits_backward() -> None:
    reader = PassingGradients(HookSet(lambda *_: None))
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    outputs = ModuleOutputs({0}, (-1,))
    outputs.add(y.grad_fn, 0, 0, -1)
    reader.begin(outputs, {})
    hook = reader._hook({0: (0,)})
    next(hook)
    former = signal.signal(signal.SIGALRM, alarm)
    try:
        # Called from C, one after the other: the signal arrives before Python runs the next instruction, which is the hook's.
        slow = torch.ones(300, 300)
        calls = [
            partial(signal.setitimer, signal.ITIMER_REAL, 1e-4),
            *[partial(torch.mm, slow, slow)] * 20,
            partial(hook.send, (torch.full((4,), 3.0),)),
        ]
        deque(map(methodcaller("__call__"), calls), maxlen=0)
        y.sum().backward()
        assert x.grad is not None
        with pytest.raises(AlarmError):
            reader.end()
    finally:
        signal.signal(signal.SIGALRM, former)
    hook.close()


def test_handler_error_shows_no_gradtui_and_closes_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = chain()
    monkeypatch.setattr(passing_gradients, "_norm", lambda _: signal.raise_signal(signal.SIGALRM))
    former = signal.signal(signal.SIGALRM, alarm)
    try:
        with watched() as run:
            loss = squared(model(batch()))
            with pytest.raises(AlarmError) as caught:
                loss.backward()
            phase = run.probe.phases.phase
    finally:
        signal.signal(signal.SIGALRM, former)
    assert all(each.grad is not None for each in model.first.parameters())
    assert phase is Phase.OTHER
    files = [str(entry.path) for entry in caught.traceback]
    assert not [file for file in files if file.startswith(PACKAGE_DIRECTORY)]
    assert files[-1] == __file__


def test_another_thread_may_run_backward_over_same_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH)))
    model[1].requires_grad_(False)
    errors: list[Exception] = []

    def other() -> None:
        try:
            second.backward(retain_graph=True)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=other)

    def while_reading(_: Tensor) -> float:
        # The training thread is within a hook, and the other one comes to the same operation.
        thread.start()
        thread.join()
        return 1.0

    monkeypatch.setattr(passing_gradients, "_norm", while_reading)
    with watched():
        shared = model(batch())
        first, second = shared.sum(), shared.square().sum()
        first.backward(retain_graph=True)
    assert thread.ident is not None
    assert not errors


def test_a_backward_that_never_ran_leaves_no_hooks() -> None:
    reader = PassingGradients(HookSet(lambda *_: None))
    norms: dict[int, float] = {}
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    for _ in range(2):
        outputs = ModuleOutputs({0}, (-1,))
        outputs.add(y.grad_fn, 0, 0, -1)
        reader.begin(outputs, norms)
    y.sum().backward()
    reader.end()
    # One element each: sqrt(1 + 1 + 1 + 1).
    assert norms == {0: pytest.approx(2.0)}


def test_joint_norm_of_several_outputs() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            first, second = self.inner(x).unbind(1)
            return first, second

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.split = nn.Linear(2, 2), Split().requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.split(self.first(x))
            return (3 * first + 4 * second).sum()

    model = Whole()
    with watched() as run:
        model(torch.ones(1, 2)).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    assert passing(run)["split"] == pytest.approx(math.hypot(3, 4))


def test_a_compiled_backward_has_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = SimpleNamespace(compiled_autograd_enabled=True)
    monkeypatch.setitem(sys.modules, "torch._dynamo.compiled_autograd", enabled)
    with watched() as run:
        train(chain(), 1)
    assert passing(run) == {}
