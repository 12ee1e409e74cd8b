"""What the summary says of gradients: of the whole run, of each module and of each parameter. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from gradtui.protocol.vocabulary import GradientFigures
from gradtui.state.joint_figures import JointFigures, joint_figures
from gradtui.state.run_state import RunState
from gradtui.state.selectors import subtree
from gradtui.state.series import joint_norm


def gradient_norm(state: RunState) -> dict[str, Any]:
    """The total as it was applied, over the run; with it what accumulated in the last step, and the joint figures."""
    norms = state.norm_summary
    return {
        "since_step": norms.since_step,
        "first": number(norms.first),
        "last": number(norms.last),
        "min": norms.smallest,
        "max": norms.largest,
        "measured_steps": norms.measured_steps,
        "not_finite_steps": norms.not_finite_steps,
        "micro_steps": _micro_steps(state),
        "gradient": _joint(state, range(len(state.tree.parameters))),
    }


def modules(state: RunState) -> list[dict[str, Any]]:
    """Each module with the norm and the figures of all parameters in it, those of the modules it holds included."""
    tree = state.tree
    return [
        {
            "path": module.path,
            "type": module.type_name,
            "gradient_norm": number(joint_norm(tree.norms[subtree(module).start : subtree(module).stop]))
            if tree.norms is not None
            else None,
            "gradient": _joint(state, subtree(module)),
        }
        for module in tree.modules
    ]


def figures(state: RunState, parameter: int) -> dict[str, Any] | None:
    """What was seen of one parameter's gradient last; None if nobody looked."""
    step, seen = state.tree.figures.get(parameter, (0, None))
    return {"step": step, **_plain(seen, "parameter", "elements", "stored")} if seen is not None else None


def number(value: float | None) -> float | None:
    """What JSON has a word for; None for anything else."""
    return value if value is not None and math.isfinite(value) else None


def _joint(state: RunState, parameters: range) -> dict[str, Any] | None:
    joint = joint_figures(state.tree, parameters)
    return _plain(joint) if joint is not None else None


def _plain(seen: GradientFigures | JointFigures, *without: str) -> dict[str, Any]:
    given = {name: value for name, value in asdict(seen).items() if name not in without}
    return {name: number(value) if isinstance(value, float) else value for name, value in given.items()}


def _micro_steps(state: RunState) -> dict[str, Any] | None:
    step, norms = state.micro_norms.last()
    return {"step": step, "accumulated": [number(norm) for norm in norms]} if norms else None
