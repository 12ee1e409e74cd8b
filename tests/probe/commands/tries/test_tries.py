"""A try: the run continues as a twin that was never elsewhere, bit for bit, with the change or without it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.tried_runs import (
    AT,
    BEGINS,
    STEPS,
    TRIED,
    Pictures,
    Run,
    adamw,
    ahead,
    freeze_body,
    nothing,
    result,
    sgd,
    tried,
    without,
)
from helpers.values import assert_equal
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader

from gradtui.probe.probe import Probe
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, EndTry, SetTrainable, TryChange
from gradtui.run.text import refusals


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [adamw, sgd])
def test_discarded_try_leaves_run_without_it(kind: Any, workers: int) -> None:
    plain, run = Run(kind, workers=workers), Run(kind, workers=workers)
    plain.epochs()
    seen = tried(run, lambda id_: TryChange(id_, ("freeze body",), TRIED))
    assert_equal(run.values(), plain.values())
    assert len(run.seen) == STEPS + TRIED
    again = run.seen[BEGINS + TRIED : BEGINS + 2 * TRIED]
    assert again == run.seen[BEGINS : BEGINS + TRIED]
    assert without(run.seen, BEGINS + TRIED, TRIED) == plain.seen
    assert [len(each.losses) for each in result(seen).sides] == [TRIED, TRIED]
    assert seen.all(ev.TryEnded)[0].kept == 0
    assert not seen.all(ev.CommandRejected)


@pytest.mark.parametrize("keep", ["none", "change"])
def test_side_may_go_on_over_ends_of_epochs(keep: str) -> None:
    # Eight batches an epoch, so a side sees the ends of one or two; each draws the seeds of the next epoch.
    plain, run = (Run(adamw, samples=64) for _ in range(2))
    plain.epochs(5, lambda done: freeze_body(plain) if done == BEGINS and keep == "change" else None)
    seen = tried(run, lambda id_: TryChange(id_, ("freeze body",), TRIED, keep), epochs=5)
    assert [len(each.losses) for each in result(seen).sides] == [TRIED, TRIED]
    assert_equal(run.values(), plain.values())
    assert without(run.seen, BEGINS + TRIED, TRIED) == plain.seen


def test_several_changes_start_from_same_state() -> None:
    plain, run = Run(adamw), Run(adamw)
    plain.epochs(before=lambda done: freeze_body(plain) if done == BEGINS else None)
    seen = tried(
        run,
        lambda id_: TryChange(id_, ("freeze body", "freeze head; set-lr 0.02"), TRIED, "ask"),
        commands=ScriptedCommands([lambda queue: queue.submit(lambda id_: EndTry(id_, 1))]),
    )
    assert_equal(run.values(), plain.values())
    first, second = (without(run.seen, 0, BEGINS + at * TRIED)[:TRIED] for at in (1, 2))
    assert first == second == run.seen[BEGINS : BEGINS + TRIED]
    assert [each.change for each in result(seen).sides] == ["", "freeze body", "freeze head; set-lr 0.02"]
    assert not result(seen).notes


def test_losses_equal_two_untried_runs() -> None:
    expected = []
    for freezes in (False, True):
        alone = Run(sgd)
        alone.epochs(before=lambda done: freeze_body(alone) if done == BEGINS and freezes else None)  # noqa: B023
        expected.append(tuple(alone.losses[BEGINS : BEGINS + TRIED]))
    seen = tried(Run(sgd), lambda id_: TryChange(id_, ("freeze body",), TRIED))
    assert [each.losses for each in result(seen).sides] == expected


def test_diverging_change_ends_its_side_alone() -> None:
    plain, run = Run(sgd), Run(sgd)
    plain.epochs()
    seen = tried(run, lambda id_: TryChange(id_, ("set-lr 1e25",), TRIED, "change"))
    assert_equal(run.values(), plain.values())
    kept, diverged = result(seen).sides
    assert "not finite" in diverged.ended
    assert len(diverged.losses) < len(kept.losses) == TRIED
    assert seen.all(ev.TryEnded)[0].kept == 0


@pytest.mark.parametrize("keep", ["none", "change"])
def test_asking_try_holds_run_until_choice(keep: str) -> None:
    plain, run = Run(adamw), Run(adamw)
    plain.epochs(before=lambda done: freeze_body(plain) if done == BEGINS and keep == "change" else None)
    person = ScriptedCommands([lambda queue: queue.submit(lambda id_: EndTry(id_, int(keep == "change")))])
    seen = tried(run, lambda id_: TryChange(id_, ("freeze body",), TRIED, "ask"), commands=person)
    assert person.waits == 1
    assert result(seen).asks
    assert_equal(run.values(), plain.values())


def test_no_side_leaves_optimizer_state_to_another_one() -> None:
    """The moments of a parameter that an unfreeze added to the optimizer wait for its next unfreeze, but not those of a try."""

    def made() -> Run:
        run = Run(adamw)
        run.model.body[0].requires_grad_(False)
        run.optimizer = AdamW([each for each in run.model.parameters() if each.requires_grad], 0.01)
        run.scheduler = StepLR(run.optimizer, 5, 0.7)
        return run

    last: Callable[[int], Command] = lambda id_: SetTrainable(id_, "body.0", True)  # noqa: E731
    ends = []
    for tries in (True, False):
        run = made()
        with watched() as seen:

            def before(done: int) -> None:
                if done == AT and tries:  # noqa: B023
                    seen.submit(lambda id_: TryChange(id_, ("unfreeze body.0", "unfreeze body.0"), TRIED))
                elif done == 30 + 2 * TRIED * tries:  # noqa: B023
                    seen.submit(last)

            run.epochs(before=before)
        ends.append(run.values())
        if tries:
            _, first, second = result(seen).sides
            assert first.losses == second.losses
    assert_equal(*ends)


def refused(seen: Watched) -> str:
    (found,) = seen.all(ev.CommandRejected)
    return found.reason


FREEZE: Callable[[int], Command] = lambda id_: TryChange(id_, ("freeze body",), TRIED)  # noqa: E731


def test_written_batches_end_try_leaving_nothing() -> None:
    def writes(run: Run) -> Run:
        def step(batch: tuple[Tensor, Tensor]) -> None:
            original(batch)
            batch[0].clamp_(-1, 1)

        original, run.step = run.step, step  # type: ignore[method-assign]
        return run

    plain, run = writes(Run(adamw)), writes(Run(adamw))
    plain.epochs()
    seen = tried(run, FREEZE)
    assert "changed in place" in refused(seen)
    assert_equal(run.values(), plain.values())


def test_popped_entries_of_batch_return() -> None:
    def takes_out(run: Run) -> Run:
        run.loader.collate_fn = lambda rows: {"x": torch.stack([row[0] for row in rows]), "y": [row[1] for row in rows]}
        original = run.step
        run.step = lambda batch: original((batch["x"], torch.stack(batch.pop("y"))))  # type: ignore[call-overload,assignment,attr-defined]
        return run

    plain, run = takes_out(Run(adamw)), takes_out(Run(adamw))
    plain.epochs()
    seen = tried(run, FREEZE)
    assert len(result(seen).sides[1].losses) == TRIED
    assert_equal(run.values(), plain.values())


def test_scheduler_between_epochs_ends_try_there() -> None:
    def by_epoch() -> Run:
        run = Run(adamw, samples=64)
        run.epoch_ends, run.scheduler.step = run.scheduler.step, nothing
        return run

    plain, run = by_epoch(), by_epoch()
    plain.epochs(4)
    seen = tried(run, FREEZE, epochs=4)
    assert refused(seen) == refusals.EPOCH_CHANGES_RUN
    assert_equal(run.values(), plain.values())


def test_change_drawing_other_numbers_is_inexact() -> None:
    plain, run = Run(adamw), Run(adamw)
    plain.epochs()
    seen = tried(run, lambda id_: TryChange(id_, ("set-mode body.3 off",), TRIED))
    (note,) = result(seen).notes
    assert "random numbers" in note
    assert_equal(run.values(), plain.values())


def test_batches_that_are_fetched_further_ahead_are_refused() -> None:
    run = Run(adamw)
    with watched() as seen:
        ahead(run, 2, lambda done: seen.submit(FREEZE) if done == AT else None)  # type: ignore[arg-type,return-value]
    assert "more than one batch" in refused(seen)


def test_run_without_loader_or_that_ends_before_refuses() -> None:
    run = Run(adamw)
    with watched() as seen:
        for _ in seen.steps(8, {AT: FREEZE}):
            run.step((torch.ones(8, 6), torch.ones(8)))
    assert "no batch of a DataLoader" in refused(seen)
    assert refused(tried(Run(adamw), FREEZE, at=STEPS - 4)) == refusals.RUN_ENDED


def test_loader_made_anew_in_each_epoch_is_named() -> None:
    run = Run(adamw, samples=64)
    run.epoch_ends = lambda: setattr(run, "loader", DataLoader(Pictures(64), batch_size=8, shuffle=True))
    assert refused(tried(run, FREEZE, epochs=5)) == refusals.OTHER_ITERATOR


def test_length_of_run_that_is_over_refuses_nothing() -> None:
    """It was found in an earlier loop of the script."""
    run = Run(adamw)
    with watched() as seen:

        def before(done: int) -> None:
            if done == AT:
                seen.probe.parts.length._look_at = sys.maxsize
                seen.probe.parts.length._emitted = (AT, "an epoch")
                seen.submit(FREEZE)

        run.epochs(before=before)
    assert len(result(seen).sides[1].losses) == TRIED


def test_nothing_of_script_is_kept_alive_by_try() -> None:
    run = Run(adamw)
    seen = tried(run, FREEZE)
    left = weakref.ref(run.model), weakref.ref(run.loader)
    assert not seen.probe.dispatcher.tries.is_on
    del run
    gc.collect()
    assert [each() for each in left] == [None, None]


def test_a_try_that_fails_never_reaches_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    run, plain = Run(adamw), Run(adamw)
    plain.epochs()
    monkeypatch.setattr(Probe, "on_batch_wanted", broken)
    with watched(may_fail=True) as seen:
        run.epochs(
            1, lambda done: seen.submit(lambda id_: TryChange(id_, ("freeze body",), TRIED)) if done == AT else None
        )
    assert_equal(run.values(), plain.values())
    assert [each.part for each in seen.all(ev.ProbeFailed)][:1] == ["tries"]


class Mixing(Run):
    """Its steps draw from a generator of the script's own, and write to a queue of features."""

    def __init__(self) -> None:
        super().__init__(sgd)
        self.mixing, self.queue = torch.Generator().manual_seed(3), torch.zeros(4)
        self.drawn_while_loading = torch.Generator().manual_seed(4)
        self.loader = DataLoader(Noisy(self.drawn_while_loading), batch_size=8)

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        super().step((batch[0] * torch.rand((), generator=self.mixing), batch[1]))
        self.queue[len(self.losses) % 4] = self.losses[-1]


class Noisy(Pictures):
    def __init__(self, noise: torch.Generator) -> None:
        super().__init__(8 * STEPS)
        self.noise = noise

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index] + torch.rand(6, generator=self.noise), self.x[index, :2].sum()


def test_what_goes_on_between_sides_is_named() -> None:
    (one,) = tried(Mixing(), lambda id_: TryChange(id_, ("freeze body",), TRIED)).all(ev.ChangeTried)
    assert "self.mixing, self.queue" in one.notes[0]
    (usual,) = tried(Run(sgd), lambda id_: TryChange(id_, ("freeze body",), TRIED)).all(ev.ChangeTried)
    assert not any("own" in each for each in usual.notes)
