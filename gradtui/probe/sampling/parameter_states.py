"""Which state each parameter is in, from what was seen of one step. Pure: numbers and flags in, letters out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from gradtui.protocol.vocabulary import ParameterState


class Classified(NamedTuple):
    """What is known of all parameters, one letter for each; empty strings where nothing is known."""

    letters: str = ""
    """Letters of `ParameterState`."""
    trainable: str = ""
    """"1" or "0" for `requires_grad`."""
    reasons: str = ""
    """Letters of `StateReason`."""


@dataclass(frozen=True, slots=True)
class ParameterFacts:
    """What is known of one parameter after a step; None where it was not looked at."""

    trainable: bool
    in_optimizer: bool
    has_gradient: bool
    norm: float | None
    moved: bool
    """Its values changed since it was first seen frozen."""
    passing: bool | None
    """A gradient passes through its module to something outside it; None where that cannot be told."""
    skipped: bool
    """The loss scaler left this step out."""


def classify(facts: ParameterFacts, before: ParameterState) -> ParameterState:
    """The state these facts make; `before` stands where they do not tell."""
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
