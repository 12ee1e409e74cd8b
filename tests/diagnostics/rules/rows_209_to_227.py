"""Rows of the rules of values, clipping, optimizers, schedules and orders: GT209 to GT227."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helpers.rule_rows import Table, quiet, reports
from helpers.scripted_runs import calls, figures, run, then, window
from helpers.timed_steps import times

from gradtui.protocol import events as ev
from gradtui.protocol.call_order import LossFactors
from gradtui.protocol.step_times import LoaderSettings
from gradtui.protocol.vocabulary import GroupSettings, Phase
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

NAN = ev.NonFiniteFound(1.0, 41, 1, "NaN", Phase.FORWARD, 40)
INF = replace(NAN, value="Inf")


def loading(loader: LoaderSettings) -> RunState:
    """A run with steps whose batches come from this loader."""
    return then(run(), replace(times(), loader=loader))


def not_finite(phase: Phase, *events: ev.Event, **facts: Any) -> RunState:
    """A run with a NaN in this phase of step 41, and what came later."""
    return then(run(), replace(NAN, phase=phase, **facts), *events)


def settled(left_out_by: str, are_finite: bool) -> RunState:
    """A run with a NaN in step 41, which somebody left out, or nobody; and whether the weights stayed finite."""
    return not_finite(Phase.FORWARD, ev.NonFiniteSettled(1.0, 41, 1, ev.NonFiniteOutcome(41, left_out_by, are_finite)))


def norm(step: int, value: float) -> ev.GradientsMeasured:
    """The norm of the gradient of a step."""
    return ev.GradientsMeasured(1.0, step, value, None, None)


def scaler_skips(count: int) -> ev.Progress:
    """A step at number 41, with so many steps that a scaler left out."""
    return ev.Progress(1.0, 41, 1, 1, count, (21,), (), 0.0, 1, 1)


def with_norms(*norms: float, every: int = 1) -> RunState:
    """A run with these norms from step 1 on, `every` steps apart."""
    return then(run(), *(norm(1 + at * every, value) for at, value in enumerate(norms)))


def two_norms(*steps_of_optimizers: int) -> RunState:
    """A run whose norm grows from 0.01 to 7 in one step, and whose optimizers have made so many steps."""
    state = run()
    for step, value in ((21, 0.01), (22, 7.0)):
        state.gradient_norm.append(step, value)
    state.optimizer_steps = [*steps_of_optimizers]
    return state


SPIKED = (norm(11, 0.5), norm(12, 0.5), norm(13, 90.0), norm(14, 60.0))
"""The norms of a spike in step 13, and of the step after it."""
ROUND = ev.ZeroDerivativesFound(2.0, 4, (("torch.round", "middle", 2),), ("a.weight", "a.bias"))


def norms_of(rows: tuple[float, ...], count: int, first: int = 1) -> list[ev.GradientsMeasured]:
    """The same norms of the parameters in `count` steps."""
    return [ev.GradientsMeasured(1.0, step, 1.0, None, rows) for step in range(first, first + count)]


def zeros(*events: ev.Event, steps: int = 20) -> RunState:
    """A run in which the gradients of `a` are exactly zero."""
    return then(run("ZZTT", steps=steps), *events)


CLIPPING = ev.ClippingMeasured(
    1.0, 20, calls=6, late=0, empty=0, early=0, cut=6, filled=0, share=None, norm=None, foreign=(), foreign_tensors=0,
    frozen_tensors=0, site=None,
)  # fmt: skip
FILLED = {"filled": 3, "share": 0.9, "foreign": ("b.weight", "b.bias"), "foreign_tensors": 2}
"""Tensors of no optimizer in use had more than half of the squared norm in three calls."""


def clips(carries: bool = False, **changes: object) -> RunState:
    """A run with clipping calls. If it `carries`, nothing clears the gradients after a step."""
    state = run(calls=calls(window(carries=carries)))
    return then(state, replace(CLIPPING, **changes))  # type: ignore[arg-type]  # the caller names fields


def zeroed(before: float, applied: float) -> RunState:
    """A run that clips a gradient of norm `before` in step 7, and applies one of norm `applied`."""
    return then(run(), ev.StepsMeasured(1.0, 7, (ev.StepFigures(7, 0, 1.0, "", applied, before, 1.0),)))


def remade(count: int, longer: int = 0, *, has_state: bool = True) -> RunState:
    """A run in which `count` optimizers replaced one of a step or two, and `longer` ones another."""
    return then(run(), ev.OptimizersRemade(1.0, 20, "Adam", count, longer, has_state, 2, None))


def misplaced(moved: int, unfit: int = 0) -> RunState:
    """A run whose optimizer was given state of four tensors, so many of them of others, or of another shape."""
    examples = (("a.weight", "b.weight"),) if moved else ()
    return then(run(), ev.OptimizerStateMisplaced(1.0, 0, 0, 4, 4, moved, examples, unfit, None))


def missed(steps: int, *groups: int) -> RunState:
    """A run in which so many steps of a scheduler miss these groups, or the optimizer that steps."""
    stepping = -1 if groups else 0
    return then(run(), ev.ScheduleMisses(1.0, 20, "StepLR", 0, groups, 0.01, steps, 5, stepping, None))


TWICE = LossFactors(0, 4, is_scaled=True, divisors=(4.0, 4.0), count=16)


def divided(*losses: LossFactors, applied: int = 4, world: int | None = None) -> RunState:
    """A run whose steps sum so many of these losses, in one process or as one of `world` ranks."""
    state = run(calls=calls(window(applied), losses=losses))
    return state if world is None else then(state, ev.ProcessGroupFound(1.0, 0, 0, world, "gloo"))


def recomputed(*regions: str, rewritten: tuple[str, ...] = (), norms: int = 0) -> RunState:
    """A run with checkpoints that draw other numbers, and modules that write their buffers twice."""
    drop = ("a.drop",) if regions else ()
    return then(run(), ev.RecomputationDiffers(1.0, 2, regions, drop, rewritten, norms))


BATCH = ev.NamedBatch(3, 10, 1, samples=(4, 7), sample_count=2, data_set="TensorDataset")


def spike(number: int, value: float, step: int = 13, **changes: Any) -> ev.SpikeFound:
    """A spike of the loss in the second backward of a step."""
    found = ev.SpikeFound(1.0, step, number, "loss", value, 0.5, 2.0, (BATCH,), micro_step=2)
    return replace(found, **changes)


def other_spike(**changes: Any) -> ev.SpikeFound:
    """A spike of another epoch, whose batch has the sample 7 too."""
    return spike(2, 3.0, 25, batches=(replace(BATCH, epoch=2, samples=(7, 1), **changes),))


SETTINGS = GroupSettings(1e-3, 0.0)


def grouped(
    first: Sequence[float], second: Sequence[float], begin: int = 11, *, born: bool = True, zeros: float = 0.0,
    group_of: tuple[int, ...] = (0, 0, 1, 1),
) -> RunState:  # fmt: skip
    """The update ratios of two weights, one in each group, in the steps from `begin` on; and in the first one, if `born`."""
    state = run()
    (optimizer,) = state.optimizers
    rows = [*([(1, 0.5, 0.5)] if born else []), *((begin + at, *pair) for at, pair in enumerate(zip(first, second)))]
    return then(
        state,
        ev.OptimizersFound(1.0, 0, (replace(optimizer, groups=2, group_of=group_of),)),
        ev.GroupsRead(1.0, 1, ((SETTINGS, SETTINGS),), None),
        *(figures(step, {0: one, 2: other}, zeros={0: zeros, 2: zeros}) for step, one, other in rows),
    )


ROWS: Table = {
    "GT209": (
        reports(
            "the first one stays",
            lambda: then(
                not_finite(Phase.BACKWARD, parameter="b.weight"),
                ev.NonFiniteFound(1.0, 42, 2, "Inf", Phase.FORWARD, 40, module="a"),
            ),
            first_step=41, paths=("b.weight",), numbers={"value": "NaN", "last_finite_step": 40}, level=None,
        ),
        *(
            # The step that follows one that a scaler left out has the same number.
            reports(
                f"a norm of {value} after {skipped} skipped steps",
                lambda skipped=skipped, value=value: then(run(), scaler_skips(skipped), INF, norm(41, value)),
                level=level,
            )
            for skipped, value, level in ((1, 0.5, Level.NOTE), (0, 0.5, None), (1, math.inf, None))
        ),
        *(
            reports(
                f"left out by {who or 'nobody'}, weights {'finite' if are_finite else 'lost'}",
                lambda who=who, are_finite=are_finite: settled(who, are_finite),
                level=level, numbers={"weights_stayed_finite": are_finite},
            )
            for who, are_finite, level in (
                ("script", True, Level.NOTE), ("", True, Level.WARNING), ("", False, None), ("scaler", True, None)
            )
        ),
        reports(
            "weights finite then, and later gradients not",
            lambda: then(settled("", True), norm(60, math.nan)),
            numbers={"weights_stayed_finite": None},
        ),
        reports(
            "two batches",
            lambda: not_finite(
                Phase.FORWARD, batches=(replace(BATCH, epoch=None, data_set=""), replace(BATCH, epoch=2, data_set="Subset"))
            ),
            numbers={"samples": "4, 7"},
        ),
        reports(
            "a known cause",
            lambda: not_finite(Phase.FORWARD, cause=ev.NonFiniteCause.LOG_OF_ZERO, dtype="float16", exact=False),
            numbers={"cause": "log of 0"},
        ),
        *(
            reports(
                f"{cause.value} has no remedy of its own", lambda cause=cause: not_finite(Phase.FORWARD, cause=cause),
                remedy=None,
            )
            for cause in (
                ev.NonFiniteCause.INF_MINUS_INF, ev.NonFiniteCause.ZERO_TIMES_INF, ev.NonFiniteCause.TIMES_INF
            )
        ),
        quiet("finite values", run),
    ),
    "GT210": (
        reports("ten skipped steps", lambda: run(calls=calls(skips_in_a_row=10)), evidence={"skips_in_a_row": 10}),
        quiet("nine skipped steps", lambda: run(calls=calls(skips_in_a_row=9))),
        reports(
            "a norm grows a hundredfold", lambda: with_norms(2.0, 0.5, 5.0, 50.0),
            evidence={"from": 0.5, "to": 50.0, "from_step": 2, "to_step": 4}, level=Level.NOTE,
        ),
        reports(
            "a norm grows that is clipped",
            lambda: then(with_norms(0.5), replace(norm(2, 50.0), before_clipping=80.0, clipped_at=50.0)),
            remedy="lower the learning rate, or the limit of clipping",
        ),
        quiet("a norm grows less", lambda: with_norms(0.5, 49.0)),
        quiet("a norm grows slowly", lambda: with_norms(0.5, 50.0, every=21)),
        reports("a norm of one optimizer", lambda: two_norms(20), key="growth"),
        quiet("norms of two optimizers", lambda: two_norms(10, 10)),
        reports("a norm that is no spike", lambda: then(run(), *SPIKED)),
        quiet("a spike", lambda: then(run(), *SPIKED, spike(1, 48.0))),
    ),
    "GT211": (
        reports(
            "an operation without a derivative", lambda: zeros(ROUND), paths=("a.weight", "a.bias"), level=None,
        ),
        reports("an unknown reason", lambda: zeros(figures(3, {0: 0.0})), level=Level.NOTE, paths=("a.weight",)),
        reports(
            "something else moves them", lambda: zeros(figures(3, {0: 1e-3}), *norms_of((0.0, 0.0, 0.4, 0.2), 5)),
            level=Level.NOTE, paths=("a.weight",),
        ),
        reports(
            "both factors are zeros",
            lambda: then(run("ZZZZ", steps=20), figures(3, {0: 0.0, 2: 0.0}, weight_norm=0.0)),
            level=Level.NOTE, paths=("a.weight", "b.weight"), key="factors",
        ),
        reports(
            "one of them is zeros",
            lambda: then(run("ZZTT", steps=20), figures(3, {0: 0.0}, weight_norm=0.0)),
            paths=("a.weight",), key="others",
        ),
        quiet("few readings, and it moves", lambda: zeros(figures(3, {0: 1e-3}), *norms_of((0.0, 0.0, 0.4, 0.2), 4))),
        quiet(
            "it had a gradient before",
            lambda: zeros(figures(3, {0: 1e-3}), *norms_of((0.1, 0.0, 0.4, 0.2), 1), *norms_of((0.0, 0.0, 0.4, 0.2), 8, 2)),
        ),
        quiet("four steps", lambda: zeros(steps=4)),
        quiet("it moved before", lambda: zeros(figures(3, {0: 1e-3}))),
        quiet("it trains", run),
    ),
    "GT212": (
        reports("late", lambda: clips(late=3), key="late", evidence={"calls": 6, "late": 3, "empty": 0, "early": 0}),
        reports("empty", lambda: clips(empty=3), key="empty", numbers={"empty": 3}),
        reports("early", lambda: clips(early=3), key="early", numbers={"early": 3}),
        quiet("late, but nothing clears the gradients", lambda: clips(carries=True, late=3)),
        quiet("fewer than half of the calls", lambda: clips(calls=7, late=3, empty=3, early=3)),
        quiet("two calls", lambda: clips(calls=2, late=2, empty=2, early=2)),
    ),
    "GT213": (
        reports(
            "a norm overflows", lambda: zeroed(math.inf, 0.0),
            first_step=7, evidence={"steps_zeroed": 1, "steps_clipped": 1, "last_step": 7},
        ),
        quiet("gradients with a NaN", lambda: zeroed(math.inf, math.nan)),
        quiet("gradients of zeros", lambda: zeroed(0.0, 0.0)),
        quiet("a norm that is clipped", lambda: zeroed(2.0, 1.0)),
    ),
    "GT214": (
        reports(
            "tensors of no optimizer in use", lambda: clips(**FILLED),
            paths=("b.weight", "b.bias"), evidence={"calls": 6, "calls_filled": 3, "share": 0.9, "tensors": 2, "frozen": 0},
        ),
        quiet("two calls", lambda: clips(**{**FILLED, "filled": 2})),
        quiet("fewer than a third of the calls", lambda: clips(**{**FILLED, "cut": 10})),
        quiet("none", clips),
    ),
    "GT215": (
        reports(
            "an optimizer for each step", lambda: remade(5),
            level=None, first_step=2, key="Adam", evidence={"remade": 5, "remade_later": 0, "has_state": True},
        ),
        reports("without state", lambda: remade(5, has_state=False), level=Level.NOTE),
        reports("as often after more steps", lambda: remade(6, longer=6)),
        quiet("more often after more steps", lambda: remade(6, longer=7)),
        quiet("four times", lambda: remade(4)),
    ),
    "GT216": (
        reports(
            "state of other parameters", lambda: misplaced(2),
            paths=("b.weight",), first_step=0, evidence={"tensors": 4, "moved": 2, "known": 4, "unfit": 0},
        ),
        reports("state of another shape", lambda: misplaced(0, unfit=1), paths=(), numbers={"unfit": 1}),
        quiet("each has its own", lambda: misplaced(0)),
    ),
    "GT217": (
        reports(
            "the optimizer does not step", lambda: missed(2),
            first_step=5, evidence={"scheduler_steps": 2, "learning_rate": 0.01, "groups": 0},
        ),
        reports("a group was added later", lambda: missed(2, 1), numbers={"groups": 1}),
        reports(
            "a scheduler without a step",
            lambda: then(run(), ev.ScheduleMisses(1.0, 20, "StepLR", 0, (), 0.01, 0, 1, -1, None, epochs=5)),
            numbers={"scheduler_steps": 0},
        ),
        quiet("one step of the scheduler", lambda: missed(1)),
        quiet(
            "a schedule that has begun late",
            lambda: then(run(), ev.ScheduleMisses(2.0, 30, "StepLR", 0, (), 0.01, 0, 1, -1, None)),
        ),
    ),
    "GT218": (
        reports(
            "divided twice", lambda: divided(TWICE), evidence={"backwards_a_step": 4, "divisor": 16.0, "steps": 16},
            is_exact=True,
        ),
        reports("with a weight besides", lambda: divided(replace(TWICE, divisors=(4.0, 2.0, 4.0)))),
        *(
            quiet(f"divided {words}", lambda divisors=divisors: divided(replace(TWICE, divisors=divisors)))
            for words, divisors in (
                ("never", ()), ("once", (4.0,)), ("by 4 and a weight", (4.0, 2.0)), ("by the number of samples", (16.0,)),
                ("by another number", (2.0, 2.0)),
            )
        ),
        quiet("two steps", lambda: divided(replace(TWICE, count=2))),
        quiet("steps that differ", lambda: divided(TWICE, replace(TWICE, divisors=(4.0,)))),
        quiet("one backward a step", lambda: divided(replace(TWICE, applied=1, divisors=(1.0, 1.0)), applied=1)),
        reports("two processes", lambda: divided(TWICE, world=2)),
        quiet("as many processes as backwards", lambda: divided(TWICE, world=4)),
    ),
    "GT219": (
        reports(
            "other random numbers and statistics", lambda: recomputed("b", "a", rewritten=("a.norm",), norms=1),
            {"key": "random", "level": None, "paths": ("a.drop",), "evidence": {"regions": 2, "random_modules": 1}},
            {"key": "buffers", "level": Level.WARNING, "paths": ("a.norm",), "evidence": {"modules": 1, "norms": 1}},
        ),
        reports("other buffers", lambda: recomputed(rewritten=("a", "b"), norms=1), numbers={"modules": 2, "norms": 1}),
        quiet("nothing differs", recomputed),
        quiet("no checkpoint", run),
    ),
    "GT220": (
        reports(
            "the highest of three spikes", lambda: then(run(), spike(1, 3.0, 5), spike(2, 48.0), spike(3, 2.5, 15)),
            level=Level.NOTE, first_step=13, numbers={"batch": 3, "samples": "4, 7", "steps": "5, 13, 15"},
        ),
        reports(
            "one sample in both", lambda: then(run(), spike(1, 48.0), other_spike()), numbers={"shared_samples": "7"}
        ),
        reports(
            "a batch of which not all samples are known", lambda: then(run(), spike(1, 48.0), other_spike(sample_count=64)),
            numbers={"shared_samples": ""},
        ),
        reports("it stays high", lambda: then(run(), spike(1, 48.0), ev.SpikeSettled(2.0, 21, 1, None)), level=None),
        reports("it is usual again", lambda: then(run(), spike(1, 48.0), ev.SpikeSettled(2.0, 15, 1, 15)), level=Level.NOTE),
        reports(
            "a norm that is clipped",
            lambda: then(run(), ev.SpikeFound(1.0, 13, 1, "norm", 340.0, 1.5, 4.0, clipped_at=1.0)),
            key="gradient norm", numbers={"batch": None},
        ),
        quiet("no spike", run),
    ),
    "GT221": (
        reports(
            "a group hardly moves", lambda: grouped([1e-3] * 8, [2e-6] * 8),
            paths=("b.weight",), command="set-lr 0.5 optimizer=0 group=1",
        ),
        reports(
            "a group moves too far", lambda: grouped([0.2] * 8, [2e-3] * 8),
            numbers={"learning_rate_to_try": 1e-5}, paths=("a.weight",),
        ),
        reports("rates far from each other", lambda: grouped([3e-4] * 8, [2e-6] * 8)),
        quiet("equal updates", lambda: grouped([1e-3] * 8, [1e-3] * 8), lacked=""),
        # With a hundred times the rate of the body.
        quiet("a new head on a pretrained body", lambda: grouped([5e-2] * 8, [3e-4] * 8)),
        quiet("less than 30 times", lambda: grouped([2e-4] * 8, [8e-6] * 8)),
        quiet("too few", lambda: grouped([1e-3] * 8, [2e-6] * 7)),
        quiet(
            "two of them", lambda: grouped([1e-3] * 2, [1e-3] * 2),
            lacked="too few update ratios of several groups were read after step 10",
        ),
        quiet("too early", lambda: grouped([1e-3] * 8, [2e-6] * 8, begin=3)),
        quiet("a rate of 0 is meant", lambda: grouped([1e-3] * 8, [0.0] * 8)),
        quiet("an embedding", lambda: grouped([1e-3] * 8, [2e-6] * 8, zeros=0.9)),
        # As LoRA's second matrix.
        quiet("it began at zero", lambda: grouped([0.2] * 8, [2e-3] * 8, born=False)),
        quiet("the same group", lambda: grouped([3e-4] * 8, [2e-6] * 8, group_of=(1, 1, 1, 1))),
        quiet(
            "a warm-up of one group",
            lambda: then(
                grouped([1e-3] * 8, [2e-6] * 8),
                ev.GroupsRead(1.0, 19, ((SETTINGS, replace(SETTINGS, learning_rate=2e-3)),), 18),
            ),
        ),
        quiet("one group", run, lacked="the optimizer has one parameter group"),
    ),
    "GT222": (
        reports(
            "softmax twice", lambda: then(run(), ev.UnfitLossInputs(2.0, 3, (("softmax", "log_softmax", "b"),))),
            level=None, paths=("b",), first_step=3,
        ),
        reports(
            "sigmoid twice, of no module",
            lambda: then(run(), ev.UnfitLossInputs(2.0, 3, (("sigmoid", "binary_cross_entropy_with_logits", ""),))),
            paths=(),
        ),
        reports(
            "a likelihood of logits",
            lambda: then(run(), ev.UnfitLossInputs(2.0, 3, (("a linear layer", "nll_loss", "b"),))),
            paths=("b",),
        ),
        quiet("a loss of logits", run),
    ),
    "GT223": (
        reports(
            "a cosine that rises again",
            lambda: then(run(), ev.ScheduleOver(1.0, 20, "CosineAnnealingLR", 0, 5, 12, is_cyclic=True, site=None)),
            evidence={"length": 5, "scheduler_steps": 12}, is_exact=True,
        ),
        reports(
            "a thousandth",
            lambda: then(run(), ev.ScheduleOver(1.0, 20, "StepLR", 0, 9, 20, is_cyclic=False, site=None)),
            numbers={"length": 9},
        ),
        quiet("no schedule", run),
    ),
    "GT224": (
        reports(
            "a rate as a factor", lambda: then(run(), ev.RateIsFactor(1.0, 20, 0, 0.01, 1e-4, 12, None)),
            evidence={"first_rate": 0.01, "rate": 1e-4, "scheduler_steps": 12}, is_exact=True,
        ),
        quiet("a factor", run),
    ),
    "GT225": (
        reports(
            "no set_epoch", lambda: loading(LoaderSettings(0, 8, same_order=3, sampler="DistributedSampler")),
            evidence={"sampler": "DistributedSampler", "epochs": 3}, is_exact=True,
        ),
        reports("a seed for each epoch", lambda: loading(LoaderSettings(0, 8, same_order=5, sampler="RandomSampler"))),
        quiet("two epochs", lambda: loading(LoaderSettings(0, 8, same_order=2, sampler="RandomSampler"))),
        quiet("no loader", run, lacked="no DataLoader gave the batches of a step"),
    ),
    "GT226": (
        reports(
            "two workers", lambda: loading(LoaderSettings(2, 8, copied_generator="Noisy.rng")),
            evidence={"generator": "Noisy.rng", "num_workers": 2}, is_exact=True,
        ),
        reports("two that live on", lambda: loading(LoaderSettings(2, 8, True, copied_generator="Noisy.rng"))),
        reports("one worker", lambda: loading(LoaderSettings(1, 8, copied_generator="Noisy.rng"))),
        quiet("one that lives on", lambda: loading(LoaderSettings(1, 8, True, copied_generator="Noisy.rng"))),
        quiet("no generator", lambda: loading(LoaderSettings(2, 8))),
        quiet("no workers", lambda: loading(LoaderSettings(0)), lacked="no worker process loaded the batches of a step"),
    ),
    "GT227": (
        reports(
            "tokens", lambda: then(run(), ev.AxesMixed(2.0, 3, (((8, 16, 3, 3), (8, 9, 16), "b"),))),
            level=None, paths=("b",), first_step=3,
        ),
        reports("of no module", lambda: then(run(), ev.AxesMixed(2.0, 3, (((5, 8, 4), (8, 5, 4), ""),))), paths=()),
        quiet("no such view", run),
    ),
}  # fmt: skip
