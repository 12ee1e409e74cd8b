"""Find out after how many of its steps a learning rate scheduler has done all, or nearly all, that it is made for.

Training thread. The names are those of attributes of the schedulers in `torch.optim.lr_scheduler` (PyTorch). A scheduler of
transformers is a `LambdaLR` of a `functools.partial` with the keyword `num_training_steps`.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

_ATTRIBUTES = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}


def scheduled_steps(scheduler: Any) -> int | None:
    """Return the number of steps of a scheduler after which its schedule ends; None where none of its attributes tells.

    Warm-ups (`LinearLR` that rises, `ConstantLR`) and schedules that have no end tell nothing.
    """
    name, values = type(scheduler).__name__, vars(scheduler)
    if name in _ATTRIBUTES:
        return _count(values.get(_ATTRIBUTES[name]))
    if name == "LinearLR":
        falls = values.get("end_factor", 1.0) < values.get("start_factor", 1.0)
        return _count(values.get("total_iters")) if falls else None
    if name == "SequentialLR":
        parts, milestones = values.get("_schedulers"), values.get("_milestones")
        last = scheduled_steps(parts[-1]) if parts and milestones else None
        return _count(milestones[-1] + last) if last is not None and milestones else None
    if name == "LambdaLR":
        for each in values.get("lr_lambdas", ()):
            if type(each) is partial:
                return _count(each.keywords.get("num_training_steps"))
    return None


def steps_to_thousandth(scheduler: Any) -> int | None:
    """Return after how many of its steps a scheduler has divided the learning rate by 1,000; None if it does not tell."""
    name, values = type(scheduler).__name__, vars(scheduler)
    gamma = values.get("gamma")
    if not isinstance(gamma, float) or not 0 < gamma < 1:
        return None
    times = math.ceil(round(math.log(1e-3, gamma), 6))
    if name == "ExponentialLR":
        return times
    if name == "StepLR":
        size = _count(values.get("step_size"))
        return times * size if size is not None else None
    if name == "MultiStepLR":
        counted = values.get("milestones")
        # A milestone may be there twice.
        milestones = sorted(counted.elements()) if isinstance(counted, Counter) else []
        return _count(milestones[times - 1]) if times <= len(milestones) else None
    return None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
