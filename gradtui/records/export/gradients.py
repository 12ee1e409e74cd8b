"""The part of the summary about gradients: of the whole run, of each module and of each parameter. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from gradtui.protocol import run_summary as rs
from gradtui.protocol.summary_gradients import Course, GradientNorm, JointGradient, MicroStepNorms, ParameterGradient
from gradtui.run.state.norms.aggregated_stats import aggregated_stats
from gradtui.run.state.optimizers.optimizer_turns import summarised_steps
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import norm_steps_of, subtree, subtree_saved_bytes
from gradtui.run.state.series import joint_norm
from gradtui.run.state.time.module_times import module_time


def gradient_norm(state: RunState) -> GradientNorm:
    """The total as it was applied, over the run; with it what accumulated in the last step, and the joint figures."""
    norms = state.norm_summary
    micro_step, accumulated = state.micro_norms.last()
    course = Course(
        first=number(norms.first),
        first_step=norms.first_step,
        last=number(norms.last),
        last_step=norms.last_step,
        min=norms.smallest,
        min_step=norms.smallest_step,
        max=norms.largest,
        max_step=norms.largest_step,
        measured_steps=norms.measured_steps,
    )
    return GradientNorm(
        since_step=norms.since_step,
        course=course,
        of_steps=summarised_steps(state),
        unconfirmed_steps=norms.unconfirmed_steps,
        not_finite_steps=norms.not_finite_steps,
        micro_steps=MicroStepNorms(micro_step, tuple(map(number, accumulated))) if accumulated else None,
        gradient=_joint(state, range(len(state.tree.parameters))),
    )


def modules(state: RunState) -> tuple[rs.Module, ...]:
    """Each module with its saved bytes, and the norm and figures of all parameters in it, its children's included."""
    tree = state.tree
    own: Sequence[int | None] = tree.saved.by_module if tree.saved is not None else [None] * len(tree.modules)
    rows = []
    for index, (module, saved, in_subtree) in enumerate(zip(tree.modules, own, subtree_saved_bytes(tree))):
        where, time = subtree(module), module_time(tree, index)
        norm = joint_norm(tree.norms[where.start : where.stop]) if tree.norms is not None else None
        rows.append(
            rs.Module(
                path=module.path,
                type=module.type_name,
                gradient_norm=number(norm),
                gradient_norm_steps=norm_steps_of(tree, where),
                gradient=_joint(state, where),
                saved_bytes=saved,
                subtree_saved_bytes=in_subtree,
                forward_seconds=time.forward if time is not None else None,
                own_forward_seconds=time.own_forward if time is not None else None,
                backward_seconds=time.backward if time is not None else None,
                own_backward_seconds=time.own_backward if time is not None else None,
            )
        )
    return tuple(rows)


def figures(state: RunState, parameter: int) -> ParameterGradient | None:
    """Return the last statistics of one parameter's gradient; None if it was never measured."""
    step, seen = state.tree.gradient_figures.get(parameter, (0, None))
    return ParameterGradient(step, *map(number, _FIGURES(seen))) if seen is not None else None


def number(value: Any) -> Any:
    """Return a number that JSON can represent; None for any other value."""
    return value if value is not None and math.isfinite(value) else None


def _joint(state: RunState, parameters: range) -> JointGradient | None:
    joint = aggregated_stats(state.tree, parameters)
    return JointGradient(*map(number, _JOINT(joint))) if joint is not None else None


def _reader(of: type[Any], *without: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads the fields of the same names from another class, all at once: there may be 100,000 parameters."""
    return attrgetter(*(field.name for field in fields(of) if field.name not in without))


_FIGURES = _reader(ParameterGradient, "step")
_JOINT = _reader(JointGradient)
