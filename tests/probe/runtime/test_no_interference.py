"""Observing changes nothing: same bits, same random numbers, same errors, and nothing of ours left behind."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import pickle
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter

import pytest
import torch
from helpers import loops
from helpers.examples import nightly
from helpers.summaries import summarised
from helpers.training import bits, small_net, square_steps
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.hooks import RemovableHandle
from zoo import SPECIMENS

from gradtui.probe.gradients import grad_norms
from gradtui.probe.gradients.grad_histograms import GradHistograms
from gradtui.probe.gradients.grad_scalers import GradScalers
from gradtui.probe.gradients.grad_stats import GradStats
from gradtui.probe.gradients.micro_steps import MicroSteps
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.parts import ProbeParts
from gradtui.probe.probe import Probe
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.protocol.events import GradientsMeasured, ProbeFailed
from gradtui.transport.in_process import CommandQueue

X = torch.linspace(-1, 1, 24).view(6, 4)


def outcome(loop: Callable[..., None], name: str) -> dict[str, object]:
    """Everything that a training leaves behind, to the bit."""
    specimen = SPECIMENS[name]()
    losses: list[bytes] = []

    def loss(output: object) -> Tensor:
        value = specimen.loss(output)
        losses.append(value.detach().numpy(force=True).tobytes() if value.dtype != torch.bfloat16 else bytes([0]))
        return value

    torch.manual_seed(7)
    random.seed(7)
    loop(specimen.model, specimen.batch, loss, 3)
    tensors = {name: tensor.detach() for name, tensor in specimen.model.state_dict().items()}
    grads = {name: p.grad.detach() for name, p in specimen.model.named_parameters() if p.grad is not None}
    stream = io.BytesIO()
    torch.save((tensors, {name: grad.to_dense() for name, grad in grads.items()}), stream)
    return {
        "tensors": [(name, t.dtype, t.contiguous().view(-1).view(torch.uint8).tolist()) for name, t in tensors.items()],
        "gradients": sorted(grads),
        "versions": [p._version for p in specimen.model.parameters()],
        "losses": losses,
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
    }


CASES = [
    (loop, name)
    for loop, names in {
        "plain": list(SPECIMENS),
        "adamw": ["tied_gpt", "conv_batchnorm", "dropout", "bf16", "lstm"],
        "autocast_bf16": ["tied_gpt", "conv_batchnorm", "checkpointed", "dropout"],
        "accumulation_clipped": ["tied_gpt", "frozen_encoder_with_prompt"],
        "grad_scaler": ["mlp", "conv_batchnorm"],
        "gan": ["mlp"],
        "lbfgs": ["mlp"],
        "gradient_penalty": ["mlp", "conv_batchnorm"],
        "step_in_backward": ["tied_gpt"],
        "momentum": ["conv_batchnorm", "inplace_residual"],
        "with_evaluation": ["conv_batchnorm", "transformer_encoder"],
    }.items()
    for name in names
    if name not in loops.UNSUITED.get(loop, ())
]


@pytest.mark.parametrize(("loop", "name"), CASES)
def test_training_is_the_same_to_the_bit(loop: str, name: str) -> None:
    alone = outcome(loops.LOOPS[loop], name)
    with watched(budget=1.0):
        seen = outcome(loops.LOOPS[loop], name)
    assert seen == alone


def surfaces() -> dict[str, object]:
    """Everything of torch's that is replaced or hooked while a probe is attached."""
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    module = sys.modules["torch.nn.modules.module"]
    owners = (nn.Module, torch.optim.Optimizer, torch.amp.GradScaler, torch.autograd, dataloader._BaseDataLoaderIter)
    found: dict[str, object] = {
        f"{owner.__name__}.{name}": id(value)
        for owner in owners
        for name, value in vars(owner).items()
        if callable(value)
    }
    for holder in (module, optimizer):
        for name, value in vars(holder).items():
            if name.startswith("_global_") and "hooks" in name and hasattr(value, "keys"):
                found[name] = list(value.keys())
    found["saved tensor hooks"] = torch._C._autograd._saved_tensors_hooks_is_enabled()
    found["modes"] = (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack())
    found["trace"] = (sys.gettrace(), sys.getprofile(), threading.active_count())
    return found


def test_everything_is_taken_off_again() -> None:
    before = surfaces()
    with watched():
        assert surfaces() != before
        loops.plain(small_net(), lambda _: (X,), lambda output: output.square().mean(), 2)
    assert surfaces() == before


def test_script_that_sees_hooks_on_sees_plain_signatures() -> None:
    before = inspect.signature(nn.Module.__call__), inspect.signature(torch.optim.Optimizer.zero_grad)
    with watched():
        assert (inspect.signature(nn.Module.__call__), inspect.signature(torch.optim.Optimizer.zero_grad)) == before
        assert nn.Module.__call__.__name__ == "_wrapped_call_impl"


def one_training(keep: list[weakref.ref[object]]) -> None:
    model = SPECIMENS["tied_gpt"]()
    discriminator = small_net()
    optimizer = torch.optim.Adam([*model.model.parameters(), *discriminator.parameters()], lr=1e-3)
    for step in range(3):
        optimizer.zero_grad()
        logits, loss = model.model(*model.batch(step))
        fake = discriminator(X).square().mean()
        (loss + fake).backward()
        keep += map(weakref.ref, (logits, loss, fake, next(model.model.parameters()).grad))
        optimizer.step()
    keep += map(weakref.ref, (model.model, discriminator, optimizer))
    keep += map(weakref.ref, [*model.model.modules(), *model.model.parameters()])


def test_five_trainings_in_a_row_leave_nothing_alive() -> None:
    keep: list[weakref.ref[object]] = []
    with watched() as seen:
        for _ in range(5):
            one_training(keep)
            gc.collect()
            assert [ref() for ref in keep if ref() is not None] == []
    assert len(keep) > 5 * 50
    assert seen.state.step == 15


def test_nothing_is_kept_between_backward_and_step() -> None:
    """A script that never steps frees its graph and its loss as usual."""
    model = small_net()
    with watched():
        for _ in range(3):
            output = model(X)
            graph = weakref.ref(output)
            output.square().mean().backward()
            del output
            assert graph() is None


def test_the_probe_itself_goes_when_nobody_holds_it() -> None:
    with watched() as seen:
        loops.plain(small_net(), lambda _: (X,), lambda output: output.square().mean(), 2)
    gone = weakref.ref(seen.probe)
    del seen
    gc.collect()
    assert gone() is None


def test_an_in_place_error_is_still_raised() -> None:
    weight = torch.ones(3, requires_grad=True)
    lin = nn.Linear(3, 3)
    with watched():
        optimizer = torch.optim.SGD([weight, *lin.parameters()], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            hidden = lin(weight).exp()
            (hidden * hidden).sum().backward()
            hidden = lin(weight).exp()
            hidden.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                hidden.sum().backward()
            optimizer.step()


def test_torch_func_works() -> None:
    from torch.func import functional_call, grad, jacrev, vmap

    model = small_net()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).square().mean()

    alone = grad(loss)(parameters, X), vmap(grad(loss), (None, 0))(parameters, X), jacrev(loss)(parameters, X)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in range(3):
            within = grad(loss)(parameters, X), vmap(grad(loss), (None, 0))(parameters, X), jacrev(loss)(parameters, X)
            model(X).square().mean().backward()
            optimizer.step()
    for ours, theirs in zip(within, alone):
        for name in theirs:
            assert torch.equal(ours[name], theirs[name])
    assert {info.path for info in seen.state.tree.parameters} == set(parameters)


def test_hooks_of_the_scripts_own_are_untouched() -> None:
    packed: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor.numel())
        return tensor

    def train() -> list[int]:
        packed.clear()
        model = copy.deepcopy(base)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                output = model(X)
            output.square().mean().backward()
            optimizer.step()
        return list(packed)

    base = small_net()
    alone = train()
    with watched():
        assert train() == alone


def test_a_checkpoint_is_recomputed_once() -> None:
    """Reading a saved tensor the wrong way would run the forward again."""
    calls = []

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            return super().forward(x)

    layer = Counted(4, 4)
    x = X.clone().requires_grad_(True)
    with watched():
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            checkpoint(layer, x, use_reentrant=False).exp().sum().backward()
            optimizer.step()
    assert len(calls) == 6


def test_own_operations_are_hidden_from_script_modes() -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []

    def train(mode: Callable[[], object]) -> list[str]:
        seen.clear()
        model = copy.deepcopy(base)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with mode():
            square_steps(model, optimizer, X, 3)
        return list(seen)

    base = small_net()
    for mode in (Functions, Operations):
        alone = train(mode)
        with watched():
            assert train(mode) == alone


def test_the_scripts_profiler_counts_its_own_operations_only() -> None:
    def train() -> dict[str, int]:
        model = copy.deepcopy(base)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.autograd.profiler.profile() as profile:
            square_steps(model, optimizer, X, 3)
        return {event.key: event.count for event in profile.key_averages()}

    base = small_net()
    alone = train()
    with watched():
        assert train() == alone


LISTENERS = [
    (kind, name)
    for kind, methods in ((Probe, ()), (ProbeParts, ()), (GradScalers, ("made", "scaled", "stepping", "stepped")))
    for name in vars(kind)
    if (name.startswith("on_") or name in methods) and name != "on_batch_wanted"
]
"""Called in any run; `on_batch_wanted` is called during a try."""


class BrokenError(Exception):
    pass


def every_call(model: nn.Module) -> None:
    """A loop that makes every call the probe listens to, and is over in no time."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(X), batch_size=1):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            model(x)
    optimizer.load_state_dict(optimizer.state_dict())
    with contextlib.suppress(ValueError):
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    torch.save(X, io.BytesIO())
    model.add_module("identity", nn.Identity())


def test_the_listeners_methods_are_all_there() -> None:
    assert len(LISTENERS) == 22


@pytest.mark.parametrize(("kind", "name"), LISTENERS[:: nightly(2, 1)])
def test_a_hook_that_raises_never_reaches_the_script(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = small_net()
    alone = copy.deepcopy(base)
    every_call(alone)

    def broken(*arguments: object) -> None:
        raise BrokenError(name)

    monkeypatch.setattr(kind, name, broken)
    model = copy.deepcopy(base)
    with watched(may_fail=True) as seen:
        every_call(model)
        every_call(copy.deepcopy(model))
        every_call(copy.deepcopy(model))
    assert bits(model) == bits(alone)
    failures = [failure for failure in seen.all(ProbeFailed) if "Broken" in failure.error]
    # Reported each time, the last time as switched off.
    assert [failure.disabled for failure in failures] == [False, False, True]


INNER = [
    ("view", "refresh"), ("step_sampler", "begin_step"), ("step_sampler", "on_backward"), ("step_sampler", "finish_step"),
    ("step_sampler", "_phase_ended"), ("norms.losses", "on_backward"), ("norms", "measure"), ("dispatcher", "cross"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "name"), INNER)
def test_measurement_that_fails_leaves_counting_and_phases_alone(part: str, name: str) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise BrokenError(name)

    model = small_net()
    commands = CommandQueue()
    with watched(may_fail=True, commands=commands) as seen:
        setattr(attrgetter(part)(seen.probe), name, broken)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            from gradtui.protocol.commands import Resume

            commands.submit(Resume)
            model(X).square().mean().backward()
            optimizer.step()
    assert (seen.state.step, seen.state.micro_steps) == (5, 5)
    assert seen.phases == ["load", *["forward", "backward", "other", "optimizer", "data"] * 5]
    failures = seen.all(ProbeFailed)
    assert failures
    assert all("Broken" in failure.error for failure in failures)
    assert len(failures) == 3 * len({failure.part for failure in failures}) <= 6


PARTS_OF_NORMS = [
    (NonFiniteDetector, "on_loss"), (NonFiniteDetector, "clipping"), (NonFiniteDetector, "measuring"),
    (NonFiniteDetector, "read"), (NonFiniteDetector, "stepped"),
    (MicroSteps, "ended"), (MicroSteps, "finish"), (GradStats, "before_step"),
    (GradStats, "after_step"), (GradStats, "poll"), (GradHistograms, "before_step"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "name"), PARTS_OF_NORMS)
def test_a_part_that_fails_leaves_the_norms_alone(part: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise BrokenError(name)

    monkeypatch.setattr(part, name, broken)
    model = small_net()
    with watched(may_fail=True) as seen:
        seen.submit(lambda number: FollowMicroSteps(number, True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            model(X).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert any("Broken" in failure.error for failure in seen.all(ProbeFailed))
    measured = seen.all(GradientsMeasured)
    assert [event.step for event in measured] == list(range(1, 7))
    assert all(event.before_clipping is not None for event in measured)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["on_forward_pre", "on_step_post", "on_backward_pre"])
def test_what_ends_the_script_passes(name: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    error = kind(3)

    def ends(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(Probe, name, ends)
    model = small_net()
    with watched() as seen, pytest.raises(type(error)) as raised:
        every_call(model)
    assert raised.value is error
    assert seen.all(ProbeFailed) == []
    # Its traceback holds this frame, and by it the model and its graph: other tests must not find them.
    error.__traceback__ = None
    del raised


def test_models_are_copied_and_pickled_as_usual() -> None:
    model = small_net()
    with watched():
        optimizer = torch.optim.Adam(model.parameters())
        model(X).square().mean().backward()
        optimizer.step()
        again = pickle.loads(pickle.dumps(model))
        other = copy.deepcopy((model, optimizer))
        stream = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), stream)
    assert bits(again) == bits(model) == bits(other[0])
    assert set(vars(model)) == set(vars(small_net()))


def test_hooks_of_script_have_their_usual_ids() -> None:
    def ids() -> list[int]:
        model = small_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first = RemovableHandle.next_id
        made = [model.register_forward_hook(lambda *_: None)]
        for _ in range(6):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()
            made += [model.register_forward_hook(lambda *_: None), optimizer.register_step_pre_hook(lambda *_: None)]
        return [each.id - first for each in made]

    alone, before = ids(), RemovableHandle.next_id
    with watched(budget=1.0):
        assert RemovableHandle.next_id == before
        seen = ids()
    assert seen == alone


def test_a_forked_loader_worker_is_left_alone() -> None:
    model = small_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Calls(), batch_size=2, num_workers=1, multiprocessing_context="fork")
        for inside, x in loader:
            assert inside.tolist() == [False] * len(inside)
            model(x).square().mean().backward()
            optimizer.step()
    assert seen.state.step == 2


class Calls(torch.utils.data.Dataset[tuple[bool, Tensor]]):
    """Calls a module in the worker and says whether the wrapper around that call would tell the probe."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[bool, Tensor]:
        within = inspect.getclosurevars(nn.Module.__call__).nonlocals
        return within["hooks"].active, nn.Linear(4, 4)(X[index]).detach()


def batches() -> Iterator[Tensor]:
    yield from X.split(2)


def test_other_threads_are_not_taken_for_training_thread() -> None:
    """Evaluation and augmentation in helper threads leave phases and counts alone."""
    model, helper = small_net(), small_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in batches():
            model(x).square().mean().backward()
            before = len(seen.phases)
            thread = threading.Thread(target=lambda x=x: helper(x).sum().backward())
            thread.start()
            thread.join()
            assert len(seen.phases) == before
            optimizer.step()
    assert (seen.state.step, seen.state.micro_steps) == (3, 3)


def test_training_that_moves_to_another_thread_is_followed() -> None:
    model = small_net()

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in batches():
            model(x).square().mean().backward()
            optimizer.step()

    with watched() as seen:
        for _ in range(2):
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
    assert (seen.state.step, seen.state.micro_steps) == (6, 6)


@pytest.mark.usefixtures("as_on_a_device")
def test_hook_error_is_counted_in_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests on a device rely on: they see whether one of our operations has waited for it by this alone."""

    def waits(*gradients: object) -> None:
        raise RuntimeError("called a synchronizing CUDA operation")

    monkeypatch.setattr(grad_norms, "_norms", waits)
    model = small_net()
    with watched(may_fail=True) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            model(X).square().mean().backward()
            optimizer.step()
    expected = {"error": "RuntimeError: called a synchronizing CUDA operation", "failures": 3}
    assert summarised(seen.state)["problems"] == {"gradient norms": expected}
