"""The part of the summary about gradients: of the whole run, of each module and of each parameter. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from gradtui.protocol.vocabulary import GradientStats
from gradtui.state.aggregated_stats import AggregatedStats, aggregated_stats
from gradtui.state.optimizer_turns import summarised_steps
from gradtui.state.run_state import RunState
from gradtui.state.selectors import norm_steps_of, subtree, subtree_saved_bytes
from gradtui.state.series import joint_norm


def gradient_norm(state: RunState) -> dict[str, Any]:
    """The total as it was applied, over the run; with it what accumulated in the last step, and the joint figures."""
    norms = state.norm_summary
    micro_step, accumulated = state.micro_norms.last()
    return {
        "since_step": norms.since_step,
        "first": number(norms.first),
        "first_step": norms.first_step,
        "last": number(norms.last),
        "last_step": norms.last_step,
        "min": norms.smallest,
        "min_step": norms.smallest_step,
        "max": norms.largest,
        "max_step": norms.largest_step,
        "measured_steps": norms.measured_steps,
        "of_steps": summarised_steps(state),
        "unconfirmed_steps": norms.unconfirmed_steps,
        "not_finite_steps": norms.not_finite_steps,
        "micro_steps": {"step": micro_step, "accumulated": list(map(number, accumulated))} if accumulated else None,
        "gradient": _joint(state, range(len(state.tree.parameters))),
    }


def modules(state: RunState) -> list[dict[str, Any]]:
    """Each module with its saved bytes, and the norm and figures of all parameters in it, its children's included."""
    tree = state.tree
    own: Sequence[int | None] = tree.saved.by_module if tree.saved is not None else [None] * len(tree.modules)
    rows = []
    for module, saved, in_subtree in zip(tree.modules, own, subtree_saved_bytes(tree)):
        where = subtree(module)
        norm = joint_norm(tree.norms[where.start : where.stop]) if tree.norms is not None else None
        rows.append(
            {
                "path": module.path,
                "type": module.type_name,
                "gradient_norm": number(norm),
                "gradient_norm_steps": norm_steps(state, where),
                "gradient": _joint(state, where),
                "saved_bytes": saved,
                "subtree_saved_bytes": in_subtree,
            }
        )
    return rows


def figures(state: RunState, parameter: int) -> dict[str, Any] | None:
    """Return the last statistics of one parameter's gradient; None if it was never measured."""
    step, seen = state.tree.gradient_figures.get(parameter, (0, None))
    return {"step": step, **_plain(seen, _FIGURES)} if seen is not None else None


def norm_steps(state: RunState, parameters: range) -> list[int] | None:
    """The first and the last step that these norms were read at, None where there are none."""
    steps = norm_steps_of(state.tree, parameters)
    return list(steps) if steps is not None else None


def number(value: float | None) -> float | None:
    """Return a number that JSON can represent; None for any other value."""
    return value if value is not None and math.isfinite(value) else None


def _joint(state: RunState, parameters: range) -> dict[str, Any] | None:
    joint = aggregated_stats(state.tree, parameters)
    return _plain(joint, _JOINT) if joint is not None else None


def _plain(seen: GradientStats | AggregatedStats, fields_of: _Fields) -> dict[str, Any]:
    names, read = fields_of
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in zip(names, read(seen))
    }


_Fields = tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]


def _fields(of: type[Any], *without: str) -> _Fields:
    """Names, and what reads all at once: `asdict` copies each number for itself, which shows with 100,000 parameters."""
    names = tuple(field.name for field in fields(of) if field.name not in without)
    return names, attrgetter(*names)


_FIGURES = _fields(GradientStats, "parameter", "elements", "stored")
_JOINT = _fields(AggregatedStats)
