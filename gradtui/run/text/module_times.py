"""How much of a step a module takes, in words. Pure."""

from __future__ import annotations

from gradtui.run.explanation.facts import TimeShare
from gradtui.run.state.module_times import ModuleTime, all_modules_seconds, longest_modules, module_time
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text, plural, share_words
from gradtui.system.printable import printable

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


def module_time_rows(state: RunState, most: int) -> list[tuple[str, str, str, str, str, str]]:
    """Return the modules whose own time is longest: path, type, forward, backward, own time and its share of that of all."""
    tree, whole = state.tree, all_modules_seconds(state.tree)
    rows = []
    for index in longest_modules(tree)[:most]:
        module, time = tree.modules[index], module_time(tree, index)
        if time is not None:
            name = printable(module.path or module.type_name)
            rows.append((name, printable(module.type_name), *_durations(time), share_words(time.own / whole)))
    return rows


def module_time_lines(state: RunState) -> list[str]:
    """Return the modules whose own time is longest as lines."""
    rows = module_time_rows(state, _LINES)
    lines = [
        f"{name}: {own} of a step ({share} of all modules), forward {forward}, backward {backward}"
        for name, _, forward, backward, own, share in rows
    ]
    return [*lines, timing_words(state)] if lines else []


def _durations(time: ModuleTime) -> tuple[str, str, str]:
    return duration_text(time.forward), duration_text(time.backward), duration_text(time.own)


def timing_words(state: RunState) -> str:
    """Return from how many steps the times of modules are, and what timing cost; empty if there are none."""
    times = state.tree.times
    if times is None:
        return ""
    clock = "on the device, between events of its stream" if times.is_on_device else "on the host's clock"
    steps = plural(times.samples, "sampled step")
    return f"From {steps}, {clock}. Timing the modules took {duration_text(times.cost)} of each."
