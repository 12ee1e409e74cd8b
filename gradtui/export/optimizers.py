"""The part of the summary about the losses and the total gradient norms of each optimizer. Pure."""

from __future__ import annotations

from typing import Any

from gradtui.export.gradients import number
from gradtui.state.curves import Extremes, OptimizerCurves
from gradtui.state.optimizer_names import optimizer_names
from gradtui.state.optimizer_turns import steps_of
from gradtui.state.run_state import RunState
from gradtui.state.series import Series


def losses(state: RunState) -> list[dict[str, Any]]:
    """Return the ends and the extremes of the loss of each optimizer, in the order of their first steps."""
    return [
        {
            **_about(state, index, name),
            "of_backwards": curves.loss_of or None,
            **_course(curves.loss, curves.loss_extremes),
        }
        for index, name, curves in _named(state)
        if len(curves.loss)
    ]


def gradient_norms(state: RunState) -> list[dict[str, Any]]:
    """Return the same of the total norm of the gradients that each optimizer applied."""
    return [
        {**_about(state, index, name), **_course(curves.gradient_norm, curves.norm_extremes)}
        for index, name, curves in _named(state)
        if len(curves.gradient_norm)
    ]


def _named(state: RunState) -> list[tuple[int, str, OptimizerCurves]]:
    names = optimizer_names(state)
    return [(index, names[index], curves) for index, curves in state.of_optimizers.items()]


def _about(state: RunState, index: int, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "optimizer": index if index >= 0 else None,
        "is_main": index == state.main_optimizer,
        "steps": steps_of(state, index) if index >= 0 else None,
    }


def _course(series: Series, extremes: Extremes) -> dict[str, Any]:
    return {
        "first": number(series.values[0]),
        "first_step": series.steps[0],
        "last": number(series.values[-1]),
        "last_step": series.steps[-1],
        "min": extremes.smallest,
        "min_step": extremes.smallest_step,
        "max": extremes.largest,
        "max_step": extremes.largest_step,
        "measured_steps": extremes.measured,
    }
