"""What a comparison knows of one run, as plain data. None is an unknown value. Times are seconds, sizes bytes."""

from __future__ import annotations

from array import array
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import Finding
from gradtui.run.state.parts.bounds import Bound

NO_NORM = -1.0
"""No norm is negative."""


@dataclass(frozen=True)
class Reported:
    """The time of each phase in some consecutive steps, the last of which is `step`."""

    step: int
    steps: int
    seconds: dict[str, float]


@dataclass(frozen=True)
class Peak:
    """The highest memory total of a phase."""

    bytes: int
    bound: Bound


@dataclass(frozen=True)
class Norms:
    """The gradient norms of one step, by the position of their parameters in `paths`; `NO_NORM` where there is none."""

    step: int
    paths: tuple[str, ...]
    values: array[float]


@dataclass(frozen=True)
class Parameter:
    """A parameter when the run ends, or when the models with it were last measured."""

    elements: int | None
    state: str | None
    """A letter of `vocabulary.ParameterState`."""
    trained_to: tuple[int, int | None] | None = None
    """If it trained: the last step that is known to have trained it, and the first later one known not to have."""
    rows: tuple[int, int] | None = None
    """Of its rows, how many train and how many there are, where commands hold some of them frozen."""

    @property
    def trained_elements(self) -> int | None:
        """The elements of a parameter that trains, without those of frozen rows."""
        if self.elements is None or self.rows is None:
            return self.elements
        return self.elements * self.rows[0] // self.rows[1]


@dataclass(frozen=True)
class Intervention:
    """A change of the run by a command."""

    step: int | None
    command: str
    """The command with its fields, which are the same for the same command."""
    text: str
    receipt: str | None


@dataclass(frozen=True)
class RunFigures:
    """All that is compared of one run."""

    name: str
    about: dict[str, str | None] = field(default_factory=dict)
    """`script`, `arguments`, `device`, `torch`, `exit code`, `first NaN or Inf`: what is compared as text."""
    steps: int = 0
    seconds: float | None = None
    is_complete: bool = True
    has_series: bool = False
    """Whether it comes from a recording. A summary has totals and last values."""
    times: tuple[Reported, ...] = ()
    totals: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase over the whole run."""
    peaks: dict[str, Peak] = field(default_factory=dict)
    """By phase."""
    held: dict[str, int | None] = field(default_factory=dict)
    """By memory category: the most bytes held at the end of a phase, of the last measurement of each phase."""
    device_peaks: dict[str, int | None] = field(default_factory=dict)
    device_times: dict[str, float] = field(default_factory=dict)
    """By phase: device time of a step, the mean of the steps that were timed."""
    loss: tuple[tuple[int, float], ...] = ()
    """(step, value)."""
    gradient_norm: tuple[tuple[int, float], ...] = ()
    metrics: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """By name: (step, value) of what the script logs; of a summary the last value."""
    norms: tuple[Norms, ...] = ()
    parameters: dict[str, Parameter] = field(default_factory=dict)
    trained_elements: int | None = None
    """Elements of the parameters that train when the run ends."""
    findings: tuple[Finding, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    interventions_dropped: int = 0
