"""A side with a change that raises ends, and is the result: the run continues as one in which it never was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.tried_runs import AT, BEGINS, TRIED, Run, adamw, result, tried
from helpers.values import assert_equal
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor, nn
from torch.optim import SGD

from gradtui.protocol import events as ev
from gradtui.protocol.commands import EndTry, TryChange
from gradtui.run.text import refusals

FAILS = 4
"""In how many steps of a side nothing fails."""


def count(made: Any) -> int:
    """Count the calls of something."""
    made.calls += 1
    return int(made.calls)


class Fussy(nn.Linear):
    """A layer that raises, from some call on, if its input requires no gradient."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if not x.requires_grad and count(self) > FAILS:
            raise RuntimeError("a shape that does not fit\nand more")
        return super().forward(x)


class Stepping(SGD):
    """Its step raises, from some call on, where a parameter has no gradient."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        first = self.param_groups[0]["params"][0]
        if first.grad is None and count(self) > FAILS:
            raise MemoryError("no room for the state")
        return super().step(closure)


class InBackward(torch.autograd.Function):
    """Passes values and gradients on, and raises in backward where `raises` says so."""

    raises: Callable[[], bool]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        if InBackward.raises():
            raise ValueError("a hook")
        return gradient


class Passing(nn.Module):
    """Passes a value on by a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def in_forward() -> Run:
    def made(parameters: Any) -> Any:
        return adamw([each for each in parameters if each.shape != (1, 8)])

    run = Run(made)
    run.model.head = Fussy(8, 1)
    return run


def cut() -> Run:
    """A model that lets no gradient pass while its first layer is frozen."""
    run = Run(adamw)
    first = run.model.body[0].weight
    run.model.append(Passing(lambda x: x if first.requires_grad else x.detach()))
    return run


def in_step() -> Run:
    return Run(lambda parameters: Stepping(parameters, 0.05, momentum=0.9))


def in_backward() -> Run:
    run = Run(adamw)
    run.model.calls = 0
    InBackward.raises = lambda: not run.model.body[0].weight.requires_grad and count(run.model) > FAILS
    run.model.append(Passing(InBackward.apply))
    return run


PLACES = {
    "forward": (in_forward, "failed: RuntimeError: a shape that does not fit, in forward of head, step 5"),
    "backward": (in_backward, "failed: ValueError: a hook, in backward, step 5"),
    "step": (in_step, "failed: no room for the state, in step, step 5"),
}


def without_model(why: str) -> str:
    """Leave out the name of the model, which stands there if another test's model is still alive."""
    return why.replace("of Sequential.", "of ")


def freeze_head(run: Run) -> None:
    for parameter in run.model.head.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None


def continues_as_without(make: Callable[[], Run], change: str) -> Watched:
    plain, run = make(), make()
    plain.epochs()
    before = [vars(run.optimizer).get("step"), nn.Module.__call__]
    seen = tried(run, lambda id_: TryChange(id_, (change, "freeze head"), TRIED))
    assert_equal(run.values(), plain.values())
    assert seen.all(ev.TryEnded)[0].kept == 0
    assert [vars(run.optimizer).get("step"), nn.Module.__call__] == before
    assert [each for each in run.seen if each not in plain.seen] == []
    return seen


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_ends_its_side_and_nothing_else(place: str) -> None:
    make, why = PLACES[place]
    without, failed, other = result(continues_as_without(make, "freeze body")).sides
    assert without_model(failed.ended) == why
    # The step that failed does not count.
    assert (len(failed.losses), len(failed.seconds)) == (FAILS, FAILS)
    assert [len(each.losses) for each in (without, other)] == [TRIED, TRIED]
    assert None not in failed.losses
    assert not without.ended
    assert not other.ended


def test_loss_without_anything_that_trains_is_result() -> None:
    failed = result(continues_as_without(cut, "freeze body.0")).sides[1]
    assert failed.ended.startswith("failed: RuntimeError: ")
    assert failed.ended.endswith(", in backward, step 1")
    assert failed.losses == ()


def test_call_failing_in_closure_is_left_alone() -> None:
    """As where the batch went through a frozen module before: only the closure computes it anew."""

    def closing(run: Run) -> Run:
        def step(batch: Any) -> None:
            def closure() -> Tensor:
                run.optimizer.zero_grad()
                shown = run.model.body(batch[0])
                loss = (run.model.head(shown).squeeze(1) - batch[1]).square().mean()
                loss.backward()
                return loss

            run.optimizer.step(closure)

        run.step = step  # type: ignore[method-assign]
        return run

    plain, run = closing(in_forward()), closing(in_forward())
    plain.epochs()
    seen = tried(run, lambda id_: TryChange(id_, ("freeze body",), TRIED))
    assert without_model(result(seen).sides[1].ended) == PLACES["forward"][1]
    assert_equal(run.values(), plain.values())


def test_another_side_is_kept_after_one_that_failed() -> None:
    plain, run = cut(), cut()
    plain.epochs(before=lambda done: freeze_head(plain) if done == BEGINS else None)
    changes = ("freeze body.0", "freeze head")
    choice = ScriptedCommands([lambda queue: queue.submit(lambda id_: EndTry(id_, 2))])
    seen = tried(run, lambda id_: TryChange(id_, changes, TRIED, "ask"), commands=choice)
    assert result(seen).sides[1].ended.startswith("failed")
    assert_equal(run.values(), plain.values())


def test_script_error_ends_run_and_measurements_are_said() -> None:
    run = Run(adamw)
    original, step_of_scheduler = run.step, vars(run.optimizer)["step"]
    run.model.calls = 0

    def step(batch: Any) -> None:
        if not run.model.body[0].weight.requires_grad and count(run.model) > FAILS:
            raise ZeroDivisionError
        original(batch)

    run.step = step  # type: ignore[method-assign]
    with watched() as seen, pytest.raises(ZeroDivisionError):
        run.epochs(
            before=lambda done: seen.submit(lambda id_: TryChange(id_, ("freeze body",), TRIED)) if done == AT else None
        )
    (refused,) = seen.all(ev.CommandRejected)
    assert refused.reason.startswith(refusals.RUN_ENDED)
    assert [len(each.losses) for each in result(seen).sides] == [TRIED, FAILS]
    assert vars(run.optimizer)["step"] is step_of_scheduler
