"""After its steps each side of a try computes the loss on batches that training does not use, and nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.examples import combinations
from helpers.tried_runs import AT, BEGINS, TRIED, Pictures, Run, adamw, ahead, freeze_body, result, sgd
from helpers.values import assert_equal
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from gradtui.protocol import events as ev
from gradtui.protocol.commands import EndTry, TryChange
from gradtui.run.state.parts.tries import HELD_ASIDE, aside_differences


class Evaluated(Run):
    """A training that evaluates with other data before its steps."""

    def __init__(self, kind: Callable[[Any], Optimizer], data: Any = None) -> None:
        super().__init__(kind)
        x = torch.randn(70, 6, generator=torch.Generator().manual_seed(9))
        self.held = data if data is not None else TensorDataset(x, x[:, :2].sum(1))

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            for batch in DataLoader(self.held, batch_size=16):
                self.model(batch[0])
        self.model.train()


def tried(run: Evaluated, *changes: str, keep: str = "none") -> Watched:
    def before(done: int) -> None:
        if done == 3:
            run.evaluate()
        if done == AT:
            seen.submit(lambda id_: TryChange(id_, changes, TRIED, keep))

    with watched() as seen:
        run.epochs(before=before)
    return seen


def fused(parameters: Any) -> Optimizer:
    return AdamW(parameters, 0.01, weight_decay=0.1, fused=True)


def plainly(run: Evaluated, change: Callable[[Any], None] = lambda _: None) -> Evaluated:
    def before(done: int) -> None:
        if done == 3:
            run.evaluate()
        if done == BEGINS:
            change(run)

    run.epochs(before=before)
    return run


@pytest.mark.parametrize(("kind", "keep"), combinations([adamw, sgd, fused], ["none", "change"]))
def test_run_equals_one_with_kept_change_only(kind: Any, keep: str) -> None:
    run = Evaluated(kind)
    seen = tried(run, "freeze body", keep=keep)
    plain = plainly(Evaluated(kind), freeze_body if keep == "change" else lambda _: None)
    assert_equal(run.values(), plain.values())
    assert [len(each.losses) for each in result(seen).sides] == [TRIED, TRIED]
    assert [len(each.aside) for each in result(seen).sides] == [HELD_ASIDE, HELD_ASIDE]
    assert not result(seen).notes
    assert len(run.seen) == len(plain.seen) + TRIED + 2 * HELD_ASIDE
    assert not seen.all(ev.CommandRejected)
    assert seen.all(ev.TryEnded)[0].kept == (keep == "change")


def test_loss_is_that_of_model_in_eval_mode() -> None:
    """Each side ends with the weights of a run that was never tried; its loss is computed here."""
    seen = tried(Evaluated(sgd), "freeze body")
    for side, change in zip(result(seen).sides, (lambda _: None, freeze_body)):
        alone = Evaluated(sgd)
        found: list[float] = []

        def before(done: int) -> None:
            if done == 3:
                alone.evaluate()  # noqa: B023
            if done == BEGINS:
                change(alone)  # noqa: B023
            if done == BEGINS + TRIED and not found:  # noqa: B023
                alone.model.eval()  # noqa: B023
                for at in range(HELD_ASIDE):
                    chosen = [(at * 8 + place) * 70 // 64 for place in range(8)]
                    x, y = (each[chosen] for each in alone.held.tensors)  # noqa: B023
                    found.append((alone.model(x).squeeze(1) - y).square().mean().item())  # noqa: B023
                alone.model.train()  # noqa: B023

        alone.epochs(before=before)
        # The loss of `Run` has 0.01 times a random number in its target.
        assert side.aside == pytest.approx(found, rel=0.05, abs=0.02)


def test_difference_has_interval_of_paired_t_test() -> None:
    sides = (ev.TriedSide("", (1.0,), (), None), ev.TriedSide("a", (1.0,), (), None))
    assert aside_differences(sides) == [None]
    without, with_it = (0.1, 0.4, 0.2, 0.3), (0.2, 0.7, 0.4, 0.5)
    (found,) = aside_differences(tuple(ev.TriedSide("", (), (), None, aside=each) for each in (without, with_it)))
    # Differences 0.1, 0.3, 0.2, 0.2: their standard deviation is 0.0816; t of 3 degrees of freedom is 3.182.
    assert (found.mean, found.pairs) == (pytest.approx(0.2), 4)
    assert found.margin == pytest.approx(3.182 * 0.0816497 / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TensorDataset(torch.randn(70, 6), torch.zeros(70, dtype=torch.long)), "other keys, types or dimensions"),
        (TensorDataset(torch.randn(9, 6), torch.randn(9)), "not enough samples"),
        (TensorDataset(torch.randn(70, 6).repeat(1, 2), torch.randn(70)), "larger"),
    ],
    ids=["other", "few", "larger"],
)
def test_batches_unlike_training_are_not_used(data: Any, why: str) -> None:
    run, plain = Evaluated(adamw, data), Evaluated(adamw, data)
    for each in (run, plain):
        each.evaluate = lambda each=each: evaluate(each.model, each.held)  # type: ignore[method-assign, misc]
    seen = tried(run, "freeze body")
    (note,) = result(seen).notes
    assert why in note
    assert [each.aside for each in result(seen).sides] == [(), ()]
    assert_equal(run.values(), plainly(plain).values())


def evaluate(model: nn.Module, data: Any) -> None:
    model.eval()
    with torch.no_grad():
        for batch in DataLoader(data, batch_size=16):
            model(batch[0][:, :6])
    model.train()


def test_data_of_earlier_training_are_not_held_aside() -> None:
    """The script evaluates with tensors, so the newest batches were those of training."""
    run, before = Evaluated(adamw), Evaluated(adamw)
    with watched() as seen:

        def evaluate(each: Evaluated) -> None:
            each.model.eval()
            with torch.no_grad():
                each.model(each.held.tensors[0])
            each.model.train()

        before.epochs(before=lambda _: evaluate(before))
        evaluate(before)
        run.epochs(before=lambda done: submit(seen) if done == AT else evaluate(run))
    assert [each.aside for each in result(seen).sides] == [(), ()]


def submit(seen: Watched, *, held_aside: bool = True) -> None:
    seen.submit(lambda id_: TryChange(id_, ("freeze body",), TRIED, held_aside=held_aside))


@pytest.mark.parametrize("ends_at", [BEGINS + TRIED + 3, BEGINS + 2 * TRIED + HELD_ASIDE + 3])
def test_ended_try_leaves_nothing(ends_at: int) -> None:
    plain, run = plainly(Evaluated(adamw)), Evaluated(adamw)
    with watched() as seen:

        def before(done: int) -> None:
            if done == 3:
                run.evaluate()
            if done == AT:
                submit(seen)
            elif done == ends_at:
                seen.submit(EndTry)

        run.epochs(before=before)
    assert [each.why for each in seen.all(ev.TryEnded)] == ["it was ended"]
    assert not seen.all(ev.ChangeTried)
    assert_equal(run.values(), plain.values())


def test_it_can_be_left_out() -> None:
    run = Evaluated(adamw)
    with watched() as seen:

        def before(done: int) -> None:
            if done == 3:
                run.evaluate()
            if done == AT:
                submit(seen, held_aside=False)

        run.epochs(before=before)
    assert [each.aside for each in result(seen).sides] == [(), ()]
    assert not result(seen).notes


class Poisoned(Pictures):
    """Raises where it is read after the evaluation."""

    read = 0

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.read += 1
        if self.read > 64:
            raise OSError("the disk is gone")
        return super().__getitem__(index)


def test_data_that_cannot_be_read_end_no_run() -> None:
    run = Evaluated(adamw, Poisoned(64))
    seen = tried(run, "freeze body")
    assert result(seen).notes == ("no loss on batches held aside: loading them raised OSError: the disk is gone",)
    assert_equal(run.values(), plainly(Evaluated(adamw, Poisoned(64))).values())


@pytest.mark.parametrize("keep", ["none", "change"])
def test_batches_that_are_fetched_ahead(keep: str) -> None:
    """One batch is fetched ahead, as by accelerate; the steps before and after those aside are thrown away."""
    plain, run = Evaluated(adamw), Evaluated(adamw)
    changes = ("freeze body", "freeze head")
    begins = BEGINS + 1

    def before_of(each: Evaluated, then: Callable[[int], None]) -> Callable[[int], None]:
        return lambda done: (each.evaluate() if done == 3 else None, then(done))[1]

    ahead(plain, 1, before_of(plain, lambda done: freeze_body(plain) if done == begins and keep == "change" else None))
    with watched() as seen:
        submit = lambda done: seen.submit(lambda id_: TryChange(id_, changes, TRIED, keep)) if done == AT else None  # noqa: E731
        ahead(run, 1, before_of(run, submit))
    assert not seen.all(ev.CommandRejected)
    assert_equal(run.values(), plain.values())
    assert [(len(each.losses), len(each.aside)) for each in result(seen).sides] == [(TRIED, HELD_ASIDE)] * 3
    held = [run.seen[begins + TRIED + at * (TRIED + HELD_ASIDE + 2) + 1 :][:HELD_ASIDE] for at in range(3)]
    assert held[0] == held[1] == held[2]
    assert not {*held[0]} & {*plain.seen}


@pytest.mark.parametrize("keep", ["none", "change"])
def test_steps_whose_closure_computes_the_gradients(keep: str) -> None:
    """As those of Lightning."""

    def closing(run: Evaluated) -> Evaluated:
        def step(batch: tuple[Tensor, Tensor]) -> None:
            def closure() -> Tensor:
                run.optimizer.zero_grad()
                loss = (run.model(batch[0]).squeeze(1) - batch[1]).square().mean()
                loss.backward()
                return loss

            run.optimizer.step(closure=closure)
            weights.append([each.clone() for each in run.model.parameters()])

        run.step = step  # type: ignore[method-assign]
        return run

    weights: list[list[Tensor]] = []
    plain, run = closing(Evaluated(adamw)), closing(Evaluated(adamw))
    plainly(plain, freeze_body if keep == "change" else lambda _: None)
    weights.clear()
    seen = tried(run, "freeze body", keep=keep)
    assert_equal(run.values(), plain.values())
    assert [len(each.aside) for each in result(seen).sides] == [HELD_ASIDE, HELD_ASIDE]
    ends = BEGINS + TRIED
    assert_equal(weights[ends : ends + HELD_ASIDE], [weights[ends - 1]] * HELD_ASIDE)


def test_exception_in_step_aside_leaves_no_trace() -> None:
    def fails(run: Evaluated) -> Evaluated:
        known = {float(each[0].double().sum()) for each in DataLoader(run.held, batch_size=1)}

        def check(_: nn.Module, args: Any) -> None:
            if run.model.training and float(args[0][0].double().sum()) in known:
                known.clear()
                raise MemoryError

        run.model.register_forward_pre_hook(check)
        return run

    run = fails(Evaluated(adamw))
    seen = tried(run, "freeze body", keep="change")
    # A second model, of which gradtui knows nothing yet: it would be listed beside this one.
    assert_equal(run.values(), plainly(fails(Evaluated(adamw)), freeze_body).values())
    (note,) = result(seen).notes
    assert note.endswith("MemoryError, in forward of the model")
    assert [(len(each.losses), each.ended) for each in result(seen).sides] == [(TRIED, ""), (TRIED, "")]
