"""Thresholds of a comparison, such as `peak>+5%`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import Finding
from gradtui.records.comparison.compare import Comparison, Row
from gradtui.records.comparison.statistics import Figure
from gradtui.system.byte_units import FACTORS

_FACTORS: dict[str, Mapping[str, float]] = {
    "bytes": FACTORS,
    "seconds": {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
    "": {"": 1},
    "findings": {"": 1},
    "elements": {"": 1, "k": 1e3, "m": 1e6, "b": 1e9},
}
"""By the unit of a quantity: what the letters behind a number multiply it with."""


def _open_findings(comparison: Comparison) -> Row:
    runs = comparison.a, comparison.b
    return Row("findings", "findings", *(_count(_open(run.findings)) for run in runs))


def _new_findings(comparison: Comparison) -> Row:
    new = sum(pair.is_newly_confirmed for pair in comparison.findings)
    return Row("new-findings", "findings", Figure(0), _count(new))


def _open(findings: tuple[Finding, ...]) -> int:
    return sum(each.is_confirmed_and_open for each in findings)


def _count(number: int) -> Figure:
    return Figure(number)


def _time(name: str) -> Callable[[Comparison], Row]:
    return lambda comparison: next(row for row in comparison.times if row.name == name)


def _held(name: str) -> Callable[[Comparison], Row]:
    return lambda comparison: next(row for row in comparison.held if row.name == name)


QUANTITIES: Mapping[str, tuple[str, Callable[[Comparison], Row]]] = MappingProxyType(
    {
        "peak": ("bytes", lambda comparison: comparison.peaks[0]),
        "parameters": ("bytes", _held("parameters")),
        "gradients": ("bytes", _held("gradients")),
        "optimizer-state": ("bytes", _held("optimizer_state")),
        "activations": ("bytes", _held("activations")),
        "step-time": ("seconds", _time("step")),
        "data-time": ("seconds", _time("data")),
        "forward-time": ("seconds", _time("forward")),
        "backward-time": ("seconds", _time("backward")),
        "optimizer-time": ("seconds", _time("optimizer")),
        "loss": ("", lambda comparison: comparison.loss),
        "gradient-norm": ("", lambda comparison: comparison.norms[0]),
        "trained": ("elements", lambda comparison: comparison.trained),
        "findings": ("findings", _open_findings),
        "new-findings": ("findings", _new_findings),
    }
)
"""By name: the unit, and where a comparison has it."""


METRIC = "metric:"
"""What stands before the name of a metric that the script logs."""


def _row_of(comparison: Comparison, name: str) -> Row:
    if not name.startswith(METRIC):
        return QUANTITIES[name][1](comparison)
    known = (row for row in comparison.metrics if row.name == name.removeprefix(METRIC))
    return next(known, Row(name.removeprefix(METRIC), "", Figure(), Figure()))


class ThresholdError(ValueError):
    """An expression that is no threshold. The message is one line."""


@dataclass(frozen=True)
class Threshold:
    """A bound for a quantity of B, or for its difference from A."""

    text: str
    name: str
    operator: str
    """`>` or `<`: on which side of `value` the threshold is exceeded."""
    value: float
    kind: str
    """`value` of B, `difference` of B and A, or `relative` difference."""

    def verdict(self, comparison: Comparison) -> Verdict:
        """Return whether a comparison exceeds it. What is unknown, or is not finite, exceeds it."""
        row = _row_of(comparison, self.name)
        found = {"value": row.b.value, "difference": row.difference, "relative": row.relative}[self.kind]
        if found is None or math.isnan(found):
            return Verdict(self, row, None, True)
        return Verdict(self, row, found, found > self.value if self.operator == ">" else found < self.value)


@dataclass(frozen=True)
class Verdict:
    """What a comparison says to a threshold."""

    threshold: Threshold
    row: Row
    found: float | None
    """What was compared with the threshold's value; None if it is unknown."""
    exceeded: bool


_FORM = re.compile(
    r"\s*(metric:.+?|[a-z-]+)\s*([<>])\s*([+-]?)\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(%|[a-zµ]*)\s*", re.IGNORECASE
)


def threshold_of(text: str) -> Threshold:
    """Read a threshold: a name, `>` or `<`, and a number. With a sign the number is a difference.

    Raises:
        ThresholdError: it cannot be read.
    """
    parts = _FORM.fullmatch(text)
    if parts is None:
        raise ThresholdError(f"{text!r} is no threshold; write it like peak>+5% or loss>0.5")
    name, operator, sign, digits, unit = parts.groups()
    if name not in QUANTITIES and not name.startswith(METRIC):
        raise ThresholdError(f"{text!r}: there is no {name!r}; the names are {', '.join(QUANTITIES)}, {METRIC}NAME")
    number = float(sign + digits)
    if unit == "%":
        if not sign:
            raise ThresholdError(f"{text!r}: a percentage needs a sign, such as {name}{operator}+{digits}%")
        return Threshold(text, name, operator, number / 100, "relative")
    factors = _FACTORS[QUANTITIES[name][0] if name in QUANTITIES else ""]
    if unit.lower() not in factors:
        raise ThresholdError(f"{text!r}: {unit!r} is no unit of {name}")
    return Threshold(text, name, operator, number * factors[unit.lower()], "difference" if sign else "value")
