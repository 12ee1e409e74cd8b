"""States of runs, built by events alone: the linear modules `a` and `b`, of 20 elements each, of a model with one optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from helpers.events import gradient_stats
from helpers.fakes import Node, found

ALL = (0, 1, 2, 3)
"""The indexes of `a.weight`, `a.bias`, `b.weight` and `b.bias`."""
ONE_BACKWARD = ev.AccumulationWindow(
    optimizer=0, applied=1, cleared=0, forwards=1, batches=1, carries=False, count=20, first_step=1, last_step=20
)
CALLS = ev.CallOrderMeasured(
    1.0, 20, windows=(ONE_BACKWARD,), first_windows=((0, 1),) * 20, clears=20, leaf_backwards=0, skips_in_a_row=0, clips=0,
    scaled_clips=0, gradients_compared=((0, 0, 16),), gradients_used=0, gradients_unused=0, gradients_replaced=0,
    loss_is_scaled=False, eval_mode=(), unused_eval_graphs=0, sites=(),
)  # fmt: skip
"""Twenty steps of one backward each."""


def linear(name: str) -> Node:
    """A linear module of 4 inputs and 4 outputs."""
    return Node(name, "Linear", (("weight", (4, 4)), ("bias", (4,))))


def run(
    states: str = "TTTT",
    trainable: str = "1111",
    reasons: str = "",
    *,
    model: ev.ModelsFound | None = None,
    owned: Sequence[int] | None = ALL,
    steps: int = 20,
    samples: int = 4,
    reach: str = "eee",
    grad_modes: str = "ggg",
    training: str = "111",
    called: tuple[int, ...] = (1, 2, 3),
    calls: ev.CallOrderMeasured = CALLS,
) -> RunState:
    """Return the state of a run of `steps` steps, `samples` of which were sampled. `owned` is None without an optimizer."""
    state = RunState()
    apply(state, model or found(Node("Net", "Net", (), (linear("a"), linear("b")))))
    if owned is not None:
        optimizer = OptimizerInfo("SGD", 1, tuple(owned), 0, (0,) * len(owned))
        apply(state, ev.OptimizersFound(0.1, 0, (optimizer,)))
        settings = GroupSettings(0.01, 0.0, (("momentum", 0.9),))
        apply(state, ev.GroupsRead(0.1, 1, ((settings,),)))
    executed = (steps,) if owned is not None else ()
    apply(state, ev.Progress(1.0, steps, steps, steps, 0, executed, (), 0.0, 1, 1))
    apply(state, ev.ParametersClassified(1.0, steps, states, trainable, reasons))
    models = len(state.tree.models)
    for sample in range(samples):
        flow = ev.GradientFlowMeasured(1.0, 1 + sample, 0, reach, grad_modes, training, called, (80,) * models)
        apply(state, flow)
    apply(state, calls)
    return state


def calls(*windows: ev.AccumulationWindow, **changes: object) -> ev.CallOrderMeasured:
    """Return the order of calls of a run with these windows."""
    first = tuple((each.optimizer, each.applied) for each in windows for _ in range(each.count))
    measured = replace(CALLS, windows=windows or CALLS.windows, first_windows=first or CALLS.first_windows)
    return replace(measured, **changes)  # type: ignore[arg-type]  # the caller names fields


def window(
    applied: int = 1, cleared: int = 0, count: int = 20, first_step: int = 1, **changes: object
) -> ev.AccumulationWindow:
    """Return a window with as many forwards and batches as backwards."""
    backwards = applied + cleared
    usual = replace(ONE_BACKWARD, applied=applied, cleared=cleared, forwards=backwards, batches=backwards, count=count)
    dated = replace(usual, first_step=first_step, last_step=first_step + count - 1)
    return replace(dated, **changes)  # type: ignore[arg-type]


def then(state: RunState, *events: ev.Event) -> RunState:
    """Return the state after further events."""
    for event in events:
        apply(state, event)
    return state


def rate_read(rate: float, *, step: int = 1, before: int | None = None, decay: float | None = 0.0) -> ev.GroupsRead:
    """Return the settings of the only group of the only optimizer. `before` is the last step with the settings before."""
    return ev.GroupsRead(1.0, step, ((GroupSettings(rate, decay),),), before)


def figures(
    step: int, ratios: dict[int, float | None], *, zeros: dict[int, float] | None = None, **changes: object
) -> ev.GradientFiguresMeasured:
    """Return the statistics of gradients at a step: the update ratio by parameter, and the share of zeros, 0 to 1."""
    shares = zeros or {}
    usual = gradient_stats()
    rows = (
        replace(usual, parameter=index, update_ratio=ratio, zero_fraction=shares.get(index, 0.0), **changes)  # type: ignore[arg-type]
        for index, ratio in ratios.items()
    )
    return ev.GradientFiguresMeasured(1.0, step, tuple(rows))
