"""Rows of the rules of backwards, steps and what is accumulated between them: GT201 to GT208."""

from __future__ import annotations

import math
from dataclasses import replace

from helpers.rule_rows import Table, quiet, reports
from helpers.scripted_runs import calls, figures, rate_read, run, then, window

from gradtui.protocol import events as ev
from gradtui.protocol.call_order import AccumulationWindow, LossFactors
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

A_PATHS = ("a.weight", "a.bias")


def called(*windows: AccumulationWindow, **changes: object) -> RunState:
    """A run with these windows of backwards and steps, and other calls that differ from the usual ones."""
    return run(calls=calls(*windows, **changes))


def with_rate(rate: float, *, since: int, step: int, own: int = 0) -> RunState:
    """A run of `step` steps, with this learning rate from step `since` on. After `own` steps another optimizer does."""
    windows = (window(count=own), window(count=step - own, first_step=own + 1, optimizer=1)) if own else ()
    return then(run(steps=step, calls=calls(*windows)), rate_read(rate, step=since, before=since - 1))


def with_group_at_zero(*, since: int = 1, step: int = 20) -> RunState:
    """A run of `step` steps whose optimizer has a second group, with a learning rate of 0 from step `since` on."""
    state = run(steps=step)
    (optimizer,) = state.optimizers
    usual, still = GroupSettings(1e-3, 0.0), GroupSettings(0.0, 0.0)
    return then(
        state,
        ev.OptimizersFound(1.0, 0, (replace(optimizer, groups=2, group_of=(0, 0, 1, 1)),)),
        *([] if since == 1 else [ev.GroupsRead(1.0, 1, ((usual, usual),), None)]),
        ev.GroupsRead(1.0, since, ((usual, still),), since - 1 if since > 1 else None),
    )


def first_rate_of_zero(last: int) -> RunState:
    """A run of 60 steps whose learning rate was 0 until step `last`."""
    return then(with_rate(0.0, since=1, step=60), rate_read(0.1, step=last + 1, before=last))


def with_ratios(*ratios: float, rate: float = 1e-12, since: int = 10, step: int = 60) -> RunState:
    """A run in which each parameter had these update ratios, the first of them in step `since`."""
    state = with_rate(rate, since=1, step=step)
    return then(state, *(figures(since + at, dict.fromkeys(range(4), ratio)) for at, ratio in enumerate(ratios)))


def lowered(*rates: float, ratio: float = 1e-3) -> RunState:
    """A run with one update ratio at step 3, at the rate 0.1, whose rate was changed at step 30, and again ten steps later."""
    state = with_ratios(ratio, rate=0.1, since=3)
    return then(state, *(rate_read(rate, step=30 + 10 * at, before=29 + 10 * at) for at, rate in enumerate(rates)))


def first_windows(*lengths: int) -> tuple[tuple[int, int], ...]:
    """The lengths of the first windows, all of optimizer 0."""
    return tuple((0, length) for length in lengths)


def lengths(*each: int) -> RunState:
    """A run whose windows had these lengths, in this order."""
    kinds = [window(length, count=each.count(length)) for length in sorted({*each})]
    return called(*kinds, first_windows=first_windows(*each))


NEVER_CLEARED = (window(count=1), window(count=19, first_step=2, carries=True))


def clipped(*norms: float) -> RunState:
    """A run that sums four losses, and clips gradients of these norms at 1."""
    state = called(window(4))
    state.clipped_at = 1.0
    for step, norm in enumerate(norms, 1):
        state.before_clipping.append(step, norm)
    return state


LOSS = LossFactors(0, 4, is_scaled=True, divisors=(4.0,), count=16)
"""Of an optimizer whose loss is divided by four."""


def rounded(*ratios: float, dtype: str = "torch.bfloat16", rate: float = 0.01) -> RunState:
    """The update ratios of `a.weight` in the newest steps."""
    tree = run().tree
    parameters = (replace(tree.parameters[0], dtype=dtype), *tree.parameters[1:])
    state = run(model=ev.ModelsFound(0.5, 0, tree.models, tree.modules, parameters))
    return then(state, rate_read(rate), *(figures(step, {0: ratio}) for step, ratio in enumerate(ratios, 1)))


LOST = {"bfloat16": 2**-9 * 0.01**0.5, "float16": 2**-12 * 0.01**0.5}
"""Update ratios at which one element of a hundred changes, by the half of the distance between two numbers at 1."""
SEEN = {"bfloat16": 2**-9 * 0.03**0.5, "float16": 2**-12 * 0.03**0.5}

ROWS: Table = {
    "GT201": (
        reports(
            "two backwards of a leaf", lambda: called(leaf_backwards=2),
            key="leaf", evidence={"backwards": 2}, is_exact=True,
        ),
        *(
            reports(
                f"a module under no_grad ({mode})",
                lambda mode=mode: run("UUTT", reach="e-e", grad_modes=f"g{mode}g"), key="no_grad", paths=A_PATHS,
            )
            for mode in "ni"
        ),
        reports(
            # The root is entered as well, and was called first of all.
            "a module that runs before those of backward", lambda: run("UUTT", reach="e-e", called=(3, 1, 2)),
            key="detached", paths=A_PATHS, level=None,
        ),
        reports(
            # What it computes may be meant for nothing, or be rebuilt from numbers.
            "an auxiliary head", lambda: run("UUTT", reach="e-e", called=(1, 3, 2)),
            key="unused", level=Level.NOTE, paths=A_PATHS,
        ),
        reports(
            "a loss of tensors of no module", lambda: run("UUUU", reach="---", calls=calls(backwards_to_others=2)),
            key="leaf", evidence={"backwards": 2}, is_exact=True,
        ),
        quiet("one backward of a leaf", lambda: called(leaf_backwards=1)),
        quiet("not called", lambda: run("UUTT", reach="e e", called=(1, -1, 2))),
        quiet("backward enters nothing", lambda: run("UUUU", reach="---")),
        quiet("in no optimizer", lambda: run("UUTT", reach="e-e", owned=(2, 3))),
        # For an adversarial input it is no mistake while a parameter trains.
        quiet(
            "other backwards while a parameter trains",
            lambda: run("TTUU", owned=(0, 1), calls=calls(backwards_to_others=16)),
        ),
        quiet("one other backward", lambda: run("UUUU", reach="---", calls=calls(backwards_to_others=1))),
        quiet("all frozen", lambda: run("FFFF", "0000", calls=calls(backwards_to_others=16))),
    ),
    "GT202": (
        reports(
            "cleared before the step", lambda: called(window(0, 1, 15, 6), window(1, 0, 5)),
            evidence={"steps": 20, "steps_without_gradient": 15}, first_step=6,
        ),
        quiet("two steps without a gradient", lambda: called(window(0, 1, 2), window(1, 0, 18, 3))),
        quiet("nine of twenty", lambda: called(window(0, 1, 9), window(1, 0, 11, 10))),
        # From the first step, five steps are enough; later on, twenty.
        reports("no rate from the first step", lambda: with_rate(0.0, since=1, step=5), numbers={"steps": 5}),
        reports("no rate since step 30", lambda: with_rate(0.0, since=30, step=49), numbers={"steps": 20}),
        quiet("a warm-up", lambda: with_rate(0.0, since=1, step=4)),
        quiet("the end of a schedule", lambda: with_rate(0.0, since=30, step=48)),
        quiet("the end of a schedule, and then another optimizer", lambda: with_rate(0.0, since=20, step=90, own=20)),
        quiet("four steps of an optimizer, and then another one", lambda: with_rate(0.0, since=1, step=90, own=4)),
        *(
            quiet(f"a small rate since step {step}", lambda step=step: with_rate(1e-9, since=step, step=100))
            for step in (1, 30)
        ),
        reports("no rate in the first epoch", lambda: first_rate_of_zero(5), numbers={"steps": 5}),
        quiet("no rate in four steps", lambda: first_rate_of_zero(4)),
        reports(
            "no rate in one group", with_group_at_zero,
            level=Level.NOTE, paths=("b.weight", "b.bias"), evidence={"steps": 20, "learning_rate": 0.0, "group": 1},
        ),
        quiet("no rate in one group, later", lambda: with_group_at_zero(since=10)),
        quiet("no rate in one group in four steps", lambda: with_group_at_zero(step=4)),
        reports(
            "below the resolution of the weights", lambda: with_ratios(1e-3, 0.0, 1e-10, 0.0),
            evidence={"learning_rate": 1e-12, "newest_update_ratio": 0.0, "since_step": 11, "tensors": 4},
        ),
        quiet("it moves", lambda: with_ratios(1e-3, 1e-4, 1e-3)),
        quiet("one measurement", lambda: with_ratios(1e-3, 0.0)),
        quiet("the end of a long schedule", lambda: with_ratios(0.0, 0.0, since=920, step=1_000)),
        quiet("it moves again", lambda: with_ratios(0.0, 0.0, 1e-3)),
        quiet("small for ten steps", lambda: with_ratios(0.0, 0.0, 0.0, since=51)),
        reports(
            # A rate of 0 has its own words.
            "a rate of 0 with ratios", lambda: with_ratios(0.0, 0.0, 0.0, rate=0.0, since=58),
            evidence={"steps": 60, "learning_rate": 0.0, "groups": 1},
        ),
        # The update ratio was 1e-3. Below 6e-9, which takes six powers of ten and two for safety, nothing moves.
        reports("lowered to nothing between two samples", lambda: lowered(1e-10), numbers={"since_step": 30}),
        quiet("lowered a little less", lambda: lowered(1e-7)),
        quiet("lowered, and raised again", lambda: lowered(1e-12, 0.05)),
        *(quiet(f"an update of {ratio}", lambda ratio=ratio: lowered(1e-12, ratio=ratio)) for ratio in (math.nan, math.inf)),
    ),
    "GT203": (
        reports(
            "each step but the first has old gradients", lambda: called(*NEVER_CLEARED, gradients_compared=((0, 15, 0),)),
            evidence={"steps": 20, "steps_with_old_gradients": 19}, first_step=2, is_exact=True,
        ),
        reports(
            "cleared once an epoch",
            lambda: called(
                window(count=4), window(count=16, first_step=2, carries=True), gradients_compared=((0, 12, 3),)
            ),
            evidence={"steps": 20, "steps_with_old_gradients": 16},
        ),
        quiet("set to None or zero", lambda: called(*NEVER_CLEARED, gradients_compared=((0, 0, 15),))),
        quiet("nothing was compared", lambda: called(*NEVER_CLEARED, gradients_compared=())),
        quiet(
            "every second step",
            lambda: called(window(count=10), window(count=10, carries=True), gradients_compared=((0, 8, 0),)),
        ),
        quiet(
            "steps without a backward",
            lambda: called(window(count=1), window(0, count=19, carries=True), gradients_compared=((0, 15, 0),)),
        ),
    ),
    "GT204": (
        reports(
            "a short first window", lambda: called(window(1, count=1), window(4, count=19, first_step=2)),
            key="first 0", evidence={"first_window": 1, "usual_window": 4, "steps": 20},
        ),
        reports(
            # Two epochs of ten batches, four to a step: two backwards are lost after the first epoch.
            "cleared at the end of an epoch", lambda: called(window(4, count=3), window(4, 2, count=1, first_step=3)),
            key="left over 0", evidence={"backwards_lost": 2, "windows": 1, "usual_window": 4, "steps": 4},
        ),
        reports(
            # Ten batches, four to a step: the third step has the last two of the first epoch.
            "passed into the next epoch",
            lambda: called(
                window(4, count=5), window(6, count=3, first_step=3),
                first_windows=first_windows(4, 4, 6, 4, 6, 4, 6, 4),
            ),
            key="passed on 0", first_step=3,
            evidence={"steps": 8, "long_windows": 3, "usual_window": 4, "passed_on": 2},
        ),
        reports(
            # Six batches, four to a step. The long windows have asked for a seventh batch too.
            "passed into the next epoch of a data loader",
            lambda: called(
                window(4, count=1), window(6, count=7, first_step=2, batches=7),
                first_windows=first_windows(4, *[6] * 7),
            ),
            key="passed on 0", numbers={"passed_on": 2},
        ),
        quiet("the last step has what is left", lambda: lengths(4, 6, 4, 6, 4, 6, 4, 6)),
        quiet("at no equal distances", lambda: lengths(4, 4, 6, 4, 4, 6, 6, 4)),
        quiet("whole windows are left out", lambda: lengths(4, 4, 8, 4, 8, 4, 8, 4)),
        quiet("of several lengths", lambda: lengths(4, 4, 6, 4, 6, 4, 5, 4)),
        quiet("longer at last", lambda: lengths(4, 4, 4, 4, 4, 6, 6, 6)),
        quiet("one backward a step", lambda: called(window(1))),
        quiet("regular", lambda: called(window(4))),
        quiet("a short last window is stepped", lambda: called(window(4, count=19), window(2, count=1, first_step=20))),
        quiet(
            "the length grows", lambda: called(window(1, count=1), window(2, count=1), window(4, count=18))
        ),
        quiet("whole windows are skipped", lambda: called(window(4), window(4, 4, count=2))),
        quiet("batches are skipped before backward", lambda: called(window(4), window(4, 1, count=2, forwards=6))),
        quiet("one of two backwards has another purpose", lambda: called(window(1, 1))),
    ),
    "GT205": (
        reports(
            "a sum over four batches", lambda: called(window(4)),
            evidence={"backwards_a_step": 4, "steps": 20, "clipped": 0, "clipped_if_divided": 0}, is_exact=True,
            level=Level.NOTE,
        ),
        reports("the sum is clipped, the mean is not", lambda: clipped(3.0, 3.5, 2.0), level=None),
        reports("the mean is clipped too", lambda: clipped(30.0, 35.0, 20.0), level=Level.NOTE),
        reports("the sum is not clipped", lambda: clipped(0.3, 0.5, 0.2), level=Level.NOTE),
        *(
            row
            for batches in (0, 3)
            for row in (
                # Two backwards may be of two losses.
                reports(f"three backwards of {batches} batches", lambda batches=batches: called(window(3, batches=batches))),
                quiet(f"two backwards of {batches} batches", lambda batches=batches: called(window(2, batches=batches))),
            )
        ),
        quiet("divided", lambda: called(window(4), loss_is_scaled=True)),
        quiet("not known", lambda: called(window(4), loss_is_scaled=None)),
        quiet("the gradients are divided", lambda: called(window(4), gradients_replaced=1)),
        quiet("two losses of a batch", lambda: called(window(2, batches=1))),
        quiet("two losses of a forward", lambda: called(window(2, forwards=1))),
        quiet("one backward a step", lambda: called(window(1))),
        quiet("no usual length", lambda: called(window(4, count=10), window(2, count=10))),
        quiet("its own loss is divided", lambda: called(window(4), loss_is_scaled=True, losses=(LOSS,))),
        reports(
            "its own loss is divided by 1",
            lambda: called(window(4), loss_is_scaled=True, losses=(replace(LOSS, divisors=(1.0,)),)),
        ),
        reports(
            "another optimizer's loss is divided",
            lambda: called(window(4), loss_is_scaled=True, losses=(replace(LOSS, is_scaled=False, divisors=()),)),
        ),
        reports(
            "two optimizers one after the other",
            lambda: called(window(4, batches=0), window(1, batches=0, optimizer=1, first_step=21)),
        ),
        quiet(
            "two optimizers in turns", lambda: called(window(4, batches=0), window(1, batches=0, optimizer=1, first_step=10))
        ),
    ),
    "GT206": (
        reports(
            "three of four backwards are lost", lambda: called(window(1, 3), gradients_unused=16),
            evidence={"backwards": 4, "backwards_lost": 3, "steps": 20}, is_exact=True,
        ),
        quiet("sharpness-aware minimisation", lambda: called(window(1, 1), gradients_used=1)),
        quiet("gradients are projected", lambda: called(window(1, 1), gradients_replaced=1)),
        quiet("half of the steps", lambda: called(window(4, 2, count=10), window(4, count=10), gradients_unused=16)),
        quiet("two steps", lambda: called(window(1, 3, count=2), gradients_unused=16)),
        quiet("backwards that lead to no parameter", lambda: called(window(4, 1), gradients_unused=16, backwards_to_others=16)),
        # Backward goes on to the input of the first model.
        quiet("an attack on the input", lambda: run(calls=calls(window(1, 1), gradients_unused=16), reach="ppp")),
    ),
    "GT207": (
        reports(
            "gradients that are not unscaled", lambda: called(clips=20, scaled_clips=20),
            evidence={"clips": 20, "scaled_clips": 20},
        ),
        quiet("one call", lambda: called(clips=20, scaled_clips=1)),
        quiet("no call", lambda: called(clips=20)),
    ),
    "GT208": (
        *(
            row
            for dtype in LOST
            for row in (
                reports(
                    f"one of a hundred elements changes in {dtype}",
                    lambda dtype=dtype: rounded(*[LOST[dtype]] * 3, dtype=dtype), paths=("a.weight",),
                ),
                reports(
                    f"it changed before in {dtype}",
                    lambda dtype=dtype: rounded(1.0, *[LOST[dtype]] * 3, dtype=dtype), numbers={"update_ratio": LOST[dtype]},
                ),
                quiet(
                    f"three of a hundred elements change in {dtype}",
                    lambda dtype=dtype: rounded(*[SEEN[dtype]] * 3, dtype=dtype),
                ),
            )
        ),
        quiet("two measurements", lambda: rounded(0.0, 0.0)),
        quiet("float32", lambda: rounded(0.0, 0.0, 0.0, dtype="float32")),
        quiet("no learning rate", lambda: rounded(0.0, 0.0, 0.0, rate=0.0)),
    ),
}  # fmt: skip
