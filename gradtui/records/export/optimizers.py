"""The part of the summary about the losses and the total gradient norms of each optimizer. Pure."""

from __future__ import annotations

from gradtui.protocol.summary_gradients import Course, LossCourse, NormCourse, OptimizerPlace
from gradtui.records.export.gradients import number
from gradtui.run.state.optimizers.optimizer_names import optimizer_names
from gradtui.run.state.optimizers.optimizer_turns import steps_of
from gradtui.run.state.parts.curves import Extremes, OptimizerCurves
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series


def losses(state: RunState) -> tuple[LossCourse, ...]:
    """Return the ends and the extremes of the loss of each optimizer, in the order of their first steps."""
    return tuple(
        LossCourse(place, curves.loss_of or None, course_of(curves.loss, curves.loss_extremes))
        for place, curves in _placed(state)
        if len(curves.loss)
    )


def gradient_norms(state: RunState) -> tuple[NormCourse, ...]:
    """Return the same of the total norm of the gradients that each optimizer applied."""
    return tuple(
        NormCourse(place, course_of(curves.gradient_norm, curves.norm_extremes))
        for place, curves in _placed(state)
        if len(curves.gradient_norm)
    )


def _placed(state: RunState) -> list[tuple[OptimizerPlace, OptimizerCurves]]:
    names = optimizer_names(state)
    return [(_place(state, index, names[index]), curves) for index, curves in state.of_optimizers.items()]


def _place(state: RunState, index: int, name: str) -> OptimizerPlace:
    is_known = index >= 0
    return OptimizerPlace(
        name=name,
        optimizer=index if is_known else None,
        is_main=index == state.main_optimizer,
        steps=steps_of(state, index) if is_known else None,
    )


def course_of(series: Series, extremes: Extremes) -> Course:
    """Return the ends and the extremes of a curve with at least one value."""
    return Course(
        first=number(series.values[0]),
        first_step=series.steps[0],
        last=number(series.values[-1]),
        last_step=series.steps[-1],
        min=extremes.smallest,
        min_step=extremes.smallest_step,
        max=extremes.largest,
        max_step=extremes.largest_step,
        measured_steps=extremes.measured,
    )
