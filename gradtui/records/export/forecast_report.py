"""The report of `gradtui forecast` as JSON and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import Command
from gradtui.protocol.forecasts import TimeForecast
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.forecast import predicted_time
from gradtui.run.text.units import plural, size_text


@dataclass(frozen=True)
class Figures:
    """Bytes of one step; None where unknown."""

    gradients: int | None
    """At the end of backward."""
    optimizer_state: int | None
    activations: int | None
    """At the end of forward."""
    peak: int | None
    peak_phase: Phase | None
    reserved: int | None = None
    """What CUDA's caching allocator has reserved in the end; None on the CPU."""

    def fits(self, room: int | None) -> bool | None:
        """Return whether the peak is at most `room` bytes; None if either is unknown."""
        return None if room is None or self.peak is None else self.peak <= room


UNKNOWN = Figures(None, None, None, None, None)


@dataclass(frozen=True)
class Choice:
    """One choice and its figures."""

    name: str
    commands: tuple[Command, ...]
    figures: Figures
    time: str
    """`faster`, `slower`, `same` or `unknown`."""
    why_not_exact: tuple[str, ...] = ()
    """Why gradients, optimizer state or activations are estimates; empty if they are exact. The peak always is one."""
    seconds: TimeForecast | None = None
    """The duration of a step, an estimate; None where modules were not timed."""


@dataclass(frozen=True)
class LargestBatchFound:
    """The largest batch with which the peak of a step fits."""

    now: int | None = None
    """The batch size of the run; None if it is unknown."""
    largest: int | None = None
    """0 if not even one sample fits."""
    peak: int | None = None
    """Bytes, with that batch."""
    why: str = ""
    """Why it is unknown."""


def forecast_document(
    now: Figures,
    choices: Sequence[Choice],
    room: int | None = None,
    largest: LargestBatchFound | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the report as JSON has it; `room` are the bytes of `--fit`, `notes` what holds for all figures."""
    return {
        "schema": 1,
        "notes": list(notes),
        "now": _entry(now, room),
        "plans": [
            {
                "name": each.name,
                "commands": [to_words(command) for command in each.commands],
                **_entry(each.figures, room),
                "exact": not each.why_not_exact,
                "time": each.time,
                "seconds": each.seconds._asdict() if each.seconds is not None else None,
                "why_not_exact": list(each.why_not_exact),
            }
            for each in choices
        ],
        **({"largest_batch": asdict(largest)} if largest is not None else {}),
    }


def _entry(figures: Figures, room: int | None) -> dict[str, Any]:
    phase = figures.peak_phase
    return {
        "gradients": figures.gradients,
        "optimizer_state": figures.optimizer_state,
        "activations": figures.activations,
        "peak": figures.peak,
        "peak_phase": phase.value if phase is not None else None,
        "reserved": figures.reserved,
        **({"fits": figures.fits(room)} if room is not None else {}),
    }


def forecast_lines(
    steps: int,
    now: Figures,
    choices: Sequence[Choice],
    room: int | None = None,
    largest: LargestBatchFound | None = None,
    notes: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of the report of a forecast after `steps` steps. Forecast peaks are estimates."""
    yield f"forecast after {plural(steps, 'step')}" + (f" ({'; '.join(notes)})" if notes else "")
    for name, title in _titles(now):
        yield f"  {title:<16} {_size(getattr(now, name))}{_ending(name, now, room)}"
    for each in choices:
        yield from _choice_lines(each, now, room)
    if largest is not None:
        without = f" without the plan{'s' if len(choices) > 1 else ''} above" if choices else ""
        size = f"{largest.largest or 'none'} (now {largest.now}), an estimate"
        yield f"largest batch that fits{without}: {f'unknown ({largest.why})' if largest.why else size}"


_TITLES = {
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "activations": "activations",
    "peak": "peak of a step",
    "reserved": "reserved",
}
_ESTIMATES = ("peak", "reserved")


def _titles(now: Figures) -> Iterator[tuple[str, str]]:
    """Yield the figures of a report with their titles. Only CUDA has reserved memory."""
    for name, title in _TITLES.items():
        if name != "reserved" or now.reserved is not None:
            yield name, title


def _choice_lines(choice: Choice, now: Figures, room: int | None) -> Iterator[str]:
    why = "; ".join(choice.why_not_exact)
    if choice.figures == UNKNOWN:
        yield f"{choice.name}: unknown ({why})"
        return
    yield f"{choice.name} (estimate: {why})" if why else choice.name
    for name, title in _titles(now):
        before, after = getattr(now, name), getattr(choice.figures, name)
        about = "about " if name in _ESTIMATES and after not in (None, before) else ""
        change = f"{_size(before)} → {about}{_size(after)}{_difference(before, after)}"
        yield f"  {title:<16} {change}{_ending(name, choice.figures, room)}"
    seconds = ""
    if choice.seconds is not None:
        noise = " within the margin" if choice.time == "same" else ""
        seconds = f"{noise}, {predicted_time(choice.seconds)}"
    yield f"  {'time of a step':<16} {choice.time}{seconds}"


def _size(size: int | None) -> str:
    return "–" if size is None else size_text(size)


def _difference(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return ""
    return (
        f"  ({'+' if after >= before else '−'}{size_text(abs(after - before))})" if after != before else "  (unchanged)"
    )


def _ending(name: str, figures: Figures, room: int | None) -> str:
    if name != "peak":
        return ""
    fits = figures.fits(room)
    phase = f" in {figures.peak_phase.value}" if figures.peak_phase is not None else ""
    return phase if fits is None else f"{phase}, {'fits' if fits else 'does not fit'}"
