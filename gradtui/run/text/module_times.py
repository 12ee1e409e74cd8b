"""How much of a step a module takes, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gradtui.protocol.summary_time import ModuleTiming
from gradtui.run.explanation.facts import TimeShare
from gradtui.run.text.units import duration_text, plural, share_words
from gradtui.system.printable import printable

if TYPE_CHECKING:
    from gradtui.protocol.run_summary import Module

_LINES = 3


def module_time_words(found: TimeShare | None) -> str | None:
    """Say how long a module runs in a step, forward and backward; None if it is unknown."""
    if found is None:
        return None
    time, whole = found.time, found.of_all
    share = f", {share_words(time.total / whole)} of all modules" if whole and time.total < 0.9995 * whole else ""
    inside = f"; {duration_text(time.own)} are its own" if time.own < 0.9995 * time.total else ""
    old = f" (step {found.step:,})" if found.step is not None else ""
    return (
        f"{duration_text(time.total)} of a step{share}: forward {duration_text(time.forward)}, backward "
        f"{duration_text(time.backward)}{inside}{old}."
    )


def module_time_sentence(found: TimeShare | None) -> str | None:
    """Say the same in a sentence about the module."""
    words = module_time_words(found)
    return f"It takes {words}" if words is not None else None


def module_time_rows(modules: Iterable[Module], most: int) -> list[tuple[str, str, str, str, str, str]]:
    """Return the modules whose own time is longest: path, type, forward, backward, own time and its share of that of all."""
    own = [(each, (each.own_forward_seconds or 0.0) + (each.own_backward_seconds or 0.0)) for each in modules]
    whole = sum(seconds for _, seconds in own)
    rows = []
    for each, seconds in sorted((each for each in own if each[1]), key=lambda each: -each[1])[:most]:
        times = (each.forward_seconds or 0.0, each.backward_seconds or 0.0, seconds)
        forward, backward, alone = map(duration_text, times)
        name, kind = printable(each.path or each.type), printable(each.type)
        rows.append((name, kind, forward, backward, alone, share_words(seconds / whole)))
    return rows


def module_time_lines(modules: Iterable[Module], timing: ModuleTiming | None) -> list[str]:
    """Return the modules whose own time is longest as lines."""
    rows = module_time_rows(modules, _LINES) if timing is not None else []
    lines = [
        f"{name}: {own} of a step ({share} of all modules), forward {forward}, backward {backward}"
        for name, _, forward, backward, own, share in rows
    ]
    return [*lines, timing_words(timing)] if lines and timing is not None else []


def timing_words(timing: ModuleTiming) -> str:
    """Return from how many steps the times of modules are, and what timing cost."""
    clock = "on the device, between events of its stream" if timing.on_device else "on the host's clock"
    steps = plural(timing.sampled_steps, "sampled step")
    return f"From {steps}, {clock}. Timing the modules took {duration_text(timing.seconds or 0.0)} of each."
