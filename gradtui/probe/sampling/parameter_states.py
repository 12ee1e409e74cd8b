"""Decide the state of each parameter from the facts of one sampled step. Pure: numbers and flags in, letters out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from gradtui.protocol.vocabulary import ParameterState


class Classified(NamedTuple):
    """The states of all parameters, one letter for each; empty strings where nothing is known."""

    letters: str = ""
    """Letters of `ParameterState`."""
    trainable: str = ""
    """"1" or "0" for `requires_grad`."""
    reasons: str = ""
    """Letters of `StateReason`."""


@dataclass(frozen=True, slots=True)
class ParameterFacts:
    """The facts about one parameter after a step; None where a fact was not measured."""

    trainable: bool
    in_optimizer: bool
    has_gradient: bool
    norm: float | None
    moved: bool
    """Its values have changed since it was first sampled as frozen."""
    passing: bool | None
    """A gradient passes through its module to something outside it; None where that is unknown."""
    skipped: bool
    """The GradScaler skipped this step."""


def classify(facts: ParameterFacts, before: ParameterState) -> ParameterState:
    """Return the state that these facts imply, or `before` where they do not decide it."""
    if not facts.trainable:
        return _frozen(facts, before)
    if facts.norm is not None and not math.isfinite(facts.norm):
        return ParameterState.SKIPPED if facts.skipped else ParameterState.NOT_FINITE
    if not facts.in_optimizer:
        return ParameterState.ORPHAN
    if facts.skipped:
        return ParameterState.SKIPPED
    if not facts.has_gradient:
        return ParameterState.UNREACHED
    if facts.norm is None:
        return before
    return ParameterState.ZERO if facts.norm == 0 else ParameterState.TRAINED


def _frozen(facts: ParameterFacts, before: ParameterState) -> ParameterState:
    if facts.moved:
        return ParameterState.MOVED
    if facts.passing is None:
        known = before in (ParameterState.FLOW_THROUGH, ParameterState.CUT)
        return before if known else ParameterState.UNKNOWN
    return ParameterState.FLOW_THROUGH if facts.passing else ParameterState.CUT
