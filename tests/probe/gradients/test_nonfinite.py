"""NaN and Inf put into every place of a step that they can come from: which phase, module and parameter are named."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers.training import loss_steps, square_step
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.probe.runtime import ReadingInterval
from gradtui.protocol.commands import PauseAtBadStep, Resume
from gradtui.protocol.events import CommandApplied, NonFiniteFound, PauseChanged
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.bad_steps import nonfinite_text

X = torch.linspace(-1, 1, 24).view(6, 4)
NAN, INF = math.nan, math.inf
BAD = 2
"""The step, counted from 0, in which it happens."""


class AtCall(nn.Module):
    """Passes its input on, and at its call number `BAD` what `change` makes of it."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change
        self.calls = itertools.count()

    def forward(self, x: Tensor) -> Tensor:
        return self.change(x) if next(self.calls) == BAD else x


class NanInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * NAN


def net(middle: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), middle or nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))


def train(
    model: nn.Module,
    *,
    steps: int = 5,
    batch: Callable[[int], Tensor] = lambda _: X,
    clip: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def measured_only_after(seen: Watched, monkeypatch: pytest.MonkeyPatch, *executed: int) -> None:
    """Steps are sampled, and norms read, that begin after so many executed ones, and no others. Losses are always read."""
    cadence = seen.probe.step_sampler._cadence
    monkeypatch.setattr(cadence, "is_due", lambda steps, *_, **__: steps in executed)
    monkeypatch.setattr(cadence, "steps_until_due", lambda _: 0)
    monkeypatch.setattr(ReadingInterval, "steps_until", lambda _, step: 0 if step - 1 in executed else 1_000)


def only(seen: Watched) -> NonFiniteFound:
    (event,) = seen.all(NonFiniteFound)
    assert seen.state.bad_step is not None
    assert replace(seen.state.bad_step, outcome=None) == event
    return event


def where(event: NonFiniteFound) -> tuple[str, Phase | None, int, int | None]:
    return event.value, event.phase, event.step, event.last_finite


def test_a_batch_that_holds_nan() -> None:
    with watched() as seen:
        train(net(), batch=lambda step: X * NAN if step == BAD else X)
    event = only(seen)
    assert where(event) == ("NaN", Phase.DATA, 3, 2)
    assert (event.module, event.parameter) == (None, None)


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        (lambda x: (-x.abs()).log(), "1"),
        (lambda x: (x * 0) / (x * 0), "1"),
        (lambda x: x.exp() * 1e38 * 1e38, "1"),
        (
            lambda x: x * INF,
            "1",
        ),  # the factor is kept for backward
    ],
    ids=["log of negative", "0/0", "overflow", "inf"],
)
def test_a_module_whose_forward_gives_it(change: Callable[[Tensor], Tensor], begins: str) -> None:
    with watched() as seen:
        train(net(AtCall(change)))
    event = only(seen)
    assert where(event)[1:] == (Phase.FORWARD, 3, 2)
    expected = "NaN" if change(X).isnan().any() else "Inf"
    assert (event.value, event.module, event.until, event.exact) == (expected, begins, "1", True)
    assert event.batch_is_finite
    assert not event.is_input


def test_the_loss_itself() -> None:
    model = net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            value = model(X).square().mean()
            (-value if step == BAD else value).log().backward()
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.FORWARD, 3, 2)
    assert (event.module, event.until, event.exact) == (None, None, True)


def test_target_that_holds_nan_is_given_to_criterion() -> None:
    """It is no argument of the model, and no DataLoader gave it: what it is cannot be told, only where it comes in."""
    model, criterion = net(), nn.MSELoss()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            criterion(model(X), torch.full((6, 2), NAN if step == BAD else 0.0)).backward()
            optimizer.step()
    event = only(seen)
    assert event.phase in (Phase.FORWARD, Phase.DATA)
    assert (event.value, event.step, event.last_finite) == ("NaN", 3, 2)


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize(
    "change", [lambda x: x + (x * 0).sqrt(), NanInBackward.apply], ids=["sqrt at 0", "custom function"]
)
def test_a_gradient_only(change: Callable[[Tensor], Tensor], clip: bool) -> None:
    """Below the module that breaks it; a clipping by its NaN total does not hide which ones."""
    with watched() as seen:
        train(net(AtCall(change)), clip=clip)
    event = only(seen)
    assert where(event) == ("NaN", Phase.BACKWARD, 3, 2)
    assert (event.parameter, event.others, event.exact) == ("0.bias", 1, True)


def test_first_gradient_is_unknown_behind_clipping() -> None:
    """In a step whose module calls nobody noted, gradients are not looked at before clipping."""
    model = net(AtCall(NanInBackward.apply))
    with watched() as seen:
        detector = seen.probe.norms.bad_steps
        detector._tracer = type(detector._tracer)()
        train(model, clip=True)
    event = only(seen)
    assert (event.value, event.phase, event.parameter, event.exact) == ("NaN", Phase.BACKWARD, None, False)


def test_overflowing_norm_of_finite_gradients_is_no_nan() -> None:
    """Their squares are beyond float32, the norm is not."""
    model, expected = net(), []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(4):
            optimizer.zero_grad()
            (model(X).square().mean() * (1e30 if step == BAD else 1.0)).backward()
            assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
            expected.append(math.hypot(*(x for p in model.parameters() for x in p.grad.flatten().tolist())))  # type: ignore[union-attr]
            optimizer.step()
    assert seen.state.gradient_norm.values == pytest.approx(expected, rel=1e-5)
    assert seen.state.bad_step is None


def test_the_optimizer_that_overflows_the_weights() -> None:
    model = net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.param_groups[0]["lr"] = 1e38 if step == BAD else 0.1
            optimizer.zero_grad()
            (model(X).square().mean() * (1e4 if step == BAD else 1.0)).backward()
            optimizer.step()
            if step == BAD:
                bad = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
                assert bad
    event = only(seen)
    assert where(event)[1:] == (Phase.OPTIMIZER, 3, 3)
    assert event.parameter in bad
    assert event.others == len(bad) - 1


def test_an_optimizer_that_divides_zero_by_zero() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.25, eps=0.0)
        loss_steps(optimizer, lambda: model(X).sum() * 0, 3)
    event = only(seen)
    assert where(event) == ("NaN", Phase.OPTIMIZER, 1, 1)
    assert (event.parameter, event.others, event.learning_rate) == ("bias", 1, 0.25)


def test_weights_that_were_never_finite() -> None:
    model = net()
    with torch.no_grad():
        model[0].weight[0, 0] = NAN
    with watched() as seen:
        train(model)
    event = only(seen)
    assert where(event) == ("NaN", Phase.LOAD, 1, None)
    assert (event.parameter, event.others) == ("0.weight", 0)


@pytest.mark.parametrize("fused", [False, True], ids=["", "fused"])
def test_step_left_out_by_scaler_is_no_nan(fused: bool) -> None:
    model = net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
        for _ in range(12):
            optimizer.zero_grad()
            scaler.scale(model(X).square().mean() * 1e4).backward()
            scaler.step(optimizer)
            scaler.update()
    assert seen.state.skipped_steps > 0
    assert seen.state.bad_step is None


def test_loss_of_nan_is_one_behind_scaler_too() -> None:
    model = net(AtCall(lambda x: (-x.abs()).log()))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale(model(X).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    event = only(seen)
    assert (event.value, event.phase, event.module, event.step) == ("NaN", Phase.FORWARD, "1", 3)
    assert seen.state.skipped_steps == 1


def test_a_closure() -> None:
    """LBFGS moves the weights between the calls of its closure, all within one step."""
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.LBFGS(model.parameters(), lr=INF, max_iter=3)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    event = only(seen)
    assert where(event)[1:] == (Phase.OPTIMIZER, 1, None)
    assert event.parameter in ("weight", "bias")


def test_the_second_micro_step_of_an_accumulated_one() -> None:
    model = net(AtCall(lambda x: (-x.abs()).log()))  # its third call: the first micro-step of the second step
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(2):
                (model(X).square().mean() / 2).backward()
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.FORWARD, 2, 1)
    assert event.module == "1"


def test_of_several_models_the_one_that_breaks() -> None:
    first, second = net(), net(AtCall(NanInBackward.apply))
    with watched() as seen:
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
        for _ in range(4):
            for model, optimizer in zip((first, second), optimizers):
                square_step(model, optimizer, X)
    event = only(seen)
    assert event.parameter is not None
    assert (event.value, event.phase, event.step) == ("NaN", Phase.BACKWARD, 6)
    assert event.parameter.endswith("0.bias")
    assert event.parameter != "0.bias"


def test_a_script_without_an_optimizer() -> None:
    model = net(AtCall(NanInBackward.apply))
    with watched() as seen:
        for _ in range(4):
            model(X).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
    event = only(seen)
    assert where(event) == ("NaN", Phase.BACKWARD, 3, 2)


def test_what_was_seen_only_later_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps whose norms were not read nobody can say more than that it was one of them. The loss shows it first."""
    model = nn.Linear(4, 2)
    with watched() as seen:
        measured_only_after(seen, monkeypatch, 9, 27)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(30):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            if step == 20:
                for p in model.parameters():
                    p.grad.fill_(NAN)  # type: ignore[union-attr]
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", None, 22, 10)
    assert (event.earliest, event.exact) == (11, False)
    assert (event.parameter, event.others) == ("bias", 1)


def test_non_finite_loss_is_found_without_norms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        measured_only_after(seen, monkeypatch, 9, 27)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(30):
            optimizer.zero_grad()
            (model(X).square().mean() * (NAN if step == 20 else 1.0)).backward()
            optimizer.step()
    event = only(seen)
    # The weights were finite as the step began: the loss itself has made it.
    assert where(event) == ("NaN", Phase.FORWARD, 21, 10)
    assert event.parameter is None


class FiniteLoss(nn.Module):
    """NaN in its second layer makes no NaN in the loss, but in the gradient of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).nan_to_num()


def test_finite_loss_of_broken_weights_has_earlier_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 11 to 27 are not measured; step 21 breaks the weights, and step 28 begins with them."""
    model = FiniteLoss()
    with watched() as seen:
        measured_only_after(seen, monkeypatch, 9, 27)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(30):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            if step == 20:
                model.second.weight.grad.fill_(NAN)  # type: ignore[union-attr]
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", None, 28, 10)
    assert (event.earliest, event.exact) == (11, False)
    assert event.parameter is not None
    assert nonfinite_text(event).startswith(f"first NaN: weights of {event.parameter}")
    assert "somewhere in steps 11 to 27" in nonfinite_text(event)


def test_broken_weights_after_finite_step_are_of_optimizer() -> None:
    model = FiniteLoss()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            square_step(model, optimizer, X)
            if step == 1:
                model.second.weight.data[0, 0] = NAN
    event = only(seen)
    assert where(event) == ("NaN", Phase.OPTIMIZER, 2, 2)
    assert (event.parameter, event.others, event.exact) == ("second.weight", 0, True)


def test_gradient_is_of_step_with_finite_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long ago the last measured step is."""
    model = net()
    with watched() as seen:
        measured_only_after(seen, monkeypatch, 9, 27)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(30):
            optimizer.zero_grad()
            (NanInBackward.apply(model(X)) if step == 27 else model(X)).square().mean().backward()
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.BACKWARD, 28, 10)
    assert (event.earliest, event.exact) == (None, True)


@pytest.mark.parametrize("trouble", ["closure", "no time"])
def test_unreadable_weights_leave_range_of_steps(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if trouble == "no time":
        monkeypatch.setattr("gradtui.probe.gradients.nonfinite._SECONDS", 0.0)
    model = net()
    with watched() as seen:
        measured_only_after(seen, monkeypatch, 9, 27)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        calls = itertools.count()

        def closure() -> Tensor:
            optimizer.zero_grad()
            output = model(X)
            loss: Tensor = (NanInBackward.apply(output) if next(calls) == 27 else output).square().mean()
            loss.backward()
            return loss

        for _ in range(30):
            if trouble == "closure":
                optimizer.step(closure)  # type: ignore[arg-type]
            else:
                closure()
                optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.BACKWARD, 28, 10)
    assert (event.earliest, event.exact) == (11, False)
    assert "between steps 11 and 28" in nonfinite_text(event)


# Over the zoo: one gradient, one weight and one output are made NaN from outside; nothing of the model's own does it.

ZOO = [name for name in SPECIMENS if name != "lazy"]


@pytest.mark.parametrize("name", ZOO)
def test_the_one_parameter_whose_gradient_is_nan(name: str) -> None:
    specimen = SPECIMENS[name]()
    reached = [n for n, p in specimen.model.named_parameters() if p.requires_grad and p.numel()]
    with watched() as seen:
        optimizer = torch.optim.SGD(specimen.model.parameters(), lr=0.01)
        for step in range(4):
            optimizer.zero_grad()
            specimen.loss(specimen.model(*specimen.batch(step))).backward()
            named = dict(specimen.model.named_parameters())
            having = [n for n in reached if named[n].grad is not None]
            chosen = having[len(having) // 2]
            if step == BAD:
                gradient = named[chosen].grad
                named[chosen].grad = gradient * NAN
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.BACKWARD, 3, 2)
    info = next(info for info in seen.state.tree.parameters if chosen in info.names)
    assert (event.parameter, event.others) == (info.path, 0)


@pytest.mark.parametrize("name", ZOO)
def test_the_one_parameter_whose_weights_an_optimizer_breaks(name: str) -> None:
    specimen = SPECIMENS[name]()
    chosen = next(n for n, p in specimen.model.named_parameters() if p.requires_grad and p.numel())

    class Breaking(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            super().step()
            if self.state.setdefault("steps", 0) == BAD:  # type: ignore[call-overload]
                with torch.no_grad():
                    dict(specimen.model.named_parameters())[chosen].fill_(INF)
            self.state["steps"] += 1  # type: ignore[index]

    with watched() as seen:
        seen.submit(PauseAtBadStep)
        seen.commands.close()
        optimizer = Breaking(specimen.model.parameters(), lr=1e-4)
        for step in range(4):
            optimizer.zero_grad()
            specimen.loss(specimen.model(*specimen.batch(step))).backward()
            optimizer.step()
    event = seen.all(NonFiniteFound)[0]
    assert where(event) == ("Inf", Phase.OPTIMIZER, 3, 3)
    info = next(info for info in seen.state.tree.parameters if chosen in info.names)
    assert (event.parameter, event.others, event.learning_rate) == (info.path, 0, 1e-4)


# The pause


def held_after(commands: ScriptedCommands, model: nn.Module, steps: int = 6) -> Watched:
    with watched(commands=commands) as seen:
        seen.submit(PauseAtBadStep)
        train(model, steps=steps)
    return seen


def test_run_is_held_once_before_step() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    seen = held_after(commands, net(AtCall(NanInBackward.apply)))
    assert commands.waits == 1
    event = seen.all(NonFiniteFound)[0]
    assert event.holds
    assert event.step == 3
    assert [(change.paused, change.step) for change in seen.all(PauseChanged)] == [(True, 2), (False, 2)]
    assert not seen.state.pauses_at_bad_step
    assert seen.state.step == 6


def test_every_step_is_measured_until_then_whatever_budget() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    model = nn.Linear(4, 2)
    with watched(commands=commands, budget=1e-9) as seen:
        seen.submit(PauseAtBadStep)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(400):
            optimizer.zero_grad()
            (model(X).square().mean() * (NAN if step == 300 else 1.0)).backward()
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.FORWARD, 301, 300)
    assert event.exact
    assert (event.module, event.until, event.batch_is_finite) == (None, None, True)
    assert next(change.step for change in seen.all(PauseChanged)) == 300


def test_weights_broken_by_step_hold_next_one() -> None:
    model = net()
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        seen.submit(PauseAtBadStep)
        train(model, optimizer=torch.optim.SGD(model.parameters(), lr=INF), steps=3)
    event = seen.all(NonFiniteFound)[0]
    assert where(event)[1:] == (Phase.OPTIMIZER, 1, 1)
    assert event.learning_rate == INF
    assert next(change.step for change in seen.all(PauseChanged)) == 1


def test_run_without_user_is_not_held() -> None:
    with watched() as seen:
        seen.submit(PauseAtBadStep)
        train(net(), steps=1)
        seen.commands.close()
        train(net(AtCall(NanInBackward.apply)))
    assert seen.all(NonFiniteFound)
    assert not seen.all(PauseChanged)


def test_pause_is_retractable_but_not_twice_or_late() -> None:
    model = net(AtCall(NanInBackward.apply))
    asked = [True, True, False, False]
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            if step == 0:
                for on in asked:
                    seen.submit(lambda number, on=on: PauseAtBadStep(number, on))
            if step == 4:
                seen.submit(PauseAtBadStep)
            square_step(model, optimizer, X)
    applied = [event.command.on for event in seen.all(CommandApplied) if isinstance(event.command, PauseAtBadStep)]
    assert applied == [True, False]
    reasons = seen.refusals()
    assert len(reasons) == 3
    assert "already not finite" in reasons[-1]
    assert not seen.all(PauseChanged)


# Nothing is disturbed


@pytest.mark.parametrize("pauses", [False, True], ids=["", "pausing"])
@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize(
    "change",
    [lambda x: (-x.abs()).log(), NanInBackward.apply, lambda x: x * INF, lambda x: nn.functional.dropout(x) / 0],
    ids=["forward", "backward", "inf", "dropout"],
)
def test_the_same_bits_and_random_numbers(change: Callable[[Tensor], Tensor], clip: bool, pauses: bool) -> None:
    def outcome() -> tuple[object, ...]:
        model = net(AtCall(change))
        torch.manual_seed(3)
        train(model, clip=clip, batch=lambda _: torch.randn(6, 4))
        bits = [p.detach().view(torch.int32).tolist() for p in model.parameters()]
        grads = [p.grad.view(torch.int32).tolist() for p in model.parameters() if p.grad is not None]
        return bits, grads, torch.get_rng_state().tolist(), [p._version for p in model.parameters()]

    plain = outcome()
    with watched(commands=ScriptedCommands([lambda queue: queue.submit(Resume)])) as seen:
        if pauses:
            seen.submit(PauseAtBadStep)
        assert outcome() == plain
    assert seen.state.bad_step is not None


def test_nothing_of_the_graph_is_kept_alive() -> None:
    model = net(AtCall(lambda x: (-x.abs()).log()))
    hidden: list[weakref.ref[Tensor]] = []
    model[2].register_forward_hook(lambda *given: hidden.append(weakref.ref(given[2])))
    with watched() as seen:
        train(model, steps=BAD + 1)
        assert seen.all(NonFiniteFound)
        assert [reference() for reference in hidden] == [None] * (BAD + 1)


def test_looking_ends_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.gradients.nonfinite._SECONDS", 0.0)
    with watched() as seen:
        train(net(AtCall(lambda x: (-x.abs()).log())))
    event = only(seen)
    assert (event.value, event.phase, event.module, event.exact) == ("NaN", Phase.FORWARD, None, False)


# What is known where less is seen


def test_unexamined_module_is_said_to_be_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched() as seen:
        monkeypatch.setattr(seen.probe.step_sampler._cadence, "is_due", lambda executed, *_, **__: executed == 0)
        train(net(AtCall(lambda x: (-x.abs()).log())))
    event = only(seen)
    assert where(event) == ("NaN", Phase.FORWARD, 3, 2)
    assert (event.module, event.exact, event.batch_is_finite) == ("0", False, False)


def as_on_a_device(seen: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of a loss before its reading has arrived."""
    monkeypatch.setattr(seen.probe.norms.bad_steps, "on_loss", lambda *_, **__: None)


def test_device_reading_tells_backward_from_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched() as seen:
        as_on_a_device(seen, monkeypatch)
        train(net(AtCall(NanInBackward.apply)))
    event = only(seen)
    assert where(event) == ("NaN", Phase.BACKWARD, 3, 2)
    assert (event.parameter, event.others) == ("0.bias", 1)


def test_device_loss_has_forward_or_update_as_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched() as seen:
        as_on_a_device(seen, monkeypatch)
        train(net(AtCall(lambda x: (-x.abs()).log())))
    event = only(seen)
    assert where(event) == ("NaN", None, 3, 2)
    assert (event.parameter, event.module, event.exact) == (None, None, False)


def test_a_compiled_model() -> None:
    model = net(nn.Tanh())
    compiled = torch.compile(model, backend="aot_eager")
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            (compiled(X).square().mean() * (-1 if step == BAD else 1)).log().backward()
            optimizer.step()
    event = only(seen)
    assert where(event) == ("NaN", Phase.FORWARD, 3, 2)
