"""What a run has had over its steps, of which its summary has the ends only. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.records.report.curves import Curve, curve_of
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP, StepCurve, step_curve
from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns
from gradtui.run.state.over_steps.markers import markers, model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.text import no_profile_text
from gradtui.run.text.optimizers import main_name, main_of
from gradtui.system.printable import printable

Rates = Mapping[tuple[int, int], Series]
"""By index of optimizer and group: its learning rates over steps."""


@dataclass(frozen=True)
class Mark:
    """What happened at a step and may explain a bend in a curve."""

    step: int
    kind: str
    text: str


@dataclass(frozen=True)
class RunSeries:
    """The curves of a run, and what happened along them."""

    loss: Curve
    """That of the main optimizer; of those before it too, where the script trains in stages."""
    loss_of: str
    """The name of the main optimizer, if several step in turns."""
    other_losses: tuple[Curve, ...]
    """Those of the other optimizers that step in turns, by their names."""
    norms: tuple[Curve, ...]
    """The total gradient norm of each of them, that of the main optimizer first."""
    clipping: tuple[Curve, ...]
    """The norms before clipping, and to what the script clips."""
    rates: tuple[Curve, ...]
    """The learning rates that have changed."""
    metrics: tuple[Curve, ...]
    """What the script logs, in the order of `RunSummary.metrics`."""
    throughput: Curve
    """Steps per second."""
    totals: tuple[tuple[Phase, tuple[tuple[int, float], ...]], ...]
    """By phase of a step: (step, bytes held at its end)."""
    step: StepCurve | None
    """The course of memory within a step."""
    no_step: str
    """Why there is no such course; empty if there is one."""
    marks: tuple[Mark, ...]
    breaks: tuple[int, ...]
    """Steps after which other models train, or another optimizer is the main one."""


def run_series(state: RunState, rates: Rates) -> RunSeries:
    """Return the curves of a run. `rates` are not in its state."""
    turns = optimizer_turns(state)
    main, name = main_of(turns, state), main_name(state)
    loss, norm = (
        (main.curves.loss, main.curves.gradient_norm) if main is not None else (state.loss, state.gradient_norm)
    )
    others = [each for each in turns.shown if each.index != state.main_optimizer]
    step, totals = step_curve(state), ((phase, tuple(state.phases[phase].totals)) for phase in PHASES_OF_STEP)
    stage = {state.main_since - 1} if state.main_since > 1 else set()
    return RunSeries(
        loss=curve_of("loss", loss),
        loss_of=name,
        other_losses=tuple(curve_of(printable(each.name), each.curves.loss) for each in others if each.has_own_loss),
        norms=(
            curve_of(f"gradient norm{f' of {name}' if name else ''}", norm),
            *(curve_of(f"gradient norm of {printable(each.name)}", each.curves.gradient_norm) for each in others),
        ),
        clipping=tuple(
            curve_of(name, series)
            for name, series in (("before clipping", state.before_clipping), ("clipped at", state.clip_thresholds))
            if len(series)
        ),
        rates=tuple(_changed(state, rates)),
        metrics=tuple(
            curve_of(printable(each.name), each.points) for each in state.metrics.by_name.values() if len(each.points)
        ),
        throughput=curve_of("steps per second", state.throughput.rates),
        totals=tuple((phase, points) for phase, points in totals if points),
        step=step,
        no_step=no_profile_text(state) if step is None else "",
        marks=tuple(Mark(each.step, each.kind.value, each.words) for each in markers(state)),
        breaks=tuple(sorted({*model_breaks(state), *stage})),
    )


def _changed(state: RunState, rates: Rates) -> Iterator[Curve]:
    seen: set[tuple[tuple[int, float], ...]] = set()
    for (optimizer, group), series in rates.items():
        curve = curve_of("", series)
        if len({value for _, value in curve.points}) < 2 or curve.points in seen:
            continue
        seen.add(curve.points)
        kind = state.optimizers[optimizer].type_name if optimizer < len(state.optimizers) else "optimizer"
        yield replace(curve, name=f"{kind} {optimizer + 1}, group {group + 1}")
