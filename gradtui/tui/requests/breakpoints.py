"""Parse the text of a breakpoint, such as `loss > 3`, and list the breakpoints that are set. Pure."""

from __future__ import annotations

import math
import re
from typing import Literal

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import ClearBreakpoint, SetBreakpoint
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.run_state import RunState
from gradtui.run.text.breakpoints import breakpoint_text
from gradtui.system.byte_units import parse_size
from gradtui.tui.requests.requests import Make, Refusal

EXAMPLES = (
    "step 500 · loss > 3 · norm > 10 · lr < 1e-4 · memory > 2 GiB · peak > 2 GiB · val/accuracy > 0.9 · spike · "
    "finding GT203"
)

_Metric = Literal["loss", "norm", "lr", "memory", "peak"]
_METRICS: dict[str, _Metric] = {
    "loss": "loss",
    "norm": "norm",
    "gradient norm": "norm",
    "grad norm": "norm",
    "lr": "lr",
    "learning rate": "lr",
    "memory": "memory",
    "peak": "peak",
    "memory peak": "peak",
}
_SIGNS = {">": True, "above": True, "<": False, "below": False}
_LOGGED = "metric "
"""What may stand before the name of a metric that the script logs, which may be called `loss`, or not be logged yet."""
_COMPARISON = re.compile(r"(?P<name>.*?)\s*(?P<sign>>=?|<=?|\babove\b|\bbelow\b)\s*(?P<value>.*)")
_SPIKE = ("spike", "loss spike", "norm spike")
_NAMED = 3
_STEP = re.compile(r"(?:step\s*=*\s*)?(\d[\d,_]*)")


def typed(text: str, state: RunState) -> Make | Refusal:
    """Return what makes the breakpoint that a text describes, or a sentence that says what is wrong with the text."""
    words = " ".join(text.casefold().split())
    if not words:
        return Refusal("Type a condition, such as loss > 3.")
    step = _STEP.fullmatch(words)
    if step is not None:
        return _at_step(int(re.sub("[,_]", "", step[1])), state)
    found = _COMPARISON.fullmatch(words)
    if words.removeprefix("a ") in _SPIKE:
        return lambda number: SetBreakpoint(number, "spike")
    if found is None and (words.split()[0] == "finding" or words.startswith("gt")):
        return _at_finding(words.removeprefix("finding").strip())
    if found is None:
        return Refusal(f"{text.strip()} is no condition: write step 500, loss > 3, spike or finding.")
    metric, logged = _METRICS.get(found["name"]), ""
    if metric is None and found["name"]:
        logged = _logged_name(found["name"], text, state)
    if metric is None and not logged:
        wrong = f"{found['name']} is no metric" if found["name"] else f"Type a metric before {found['sign']}"
        return Refusal(f"{wrong}: it is loss, norm, lr, memory or peak{_some_names(state)}.")
    above = _SIGNS.get(found["sign"])
    if above is None:
        return Refusal(f"A breakpoint compares by > or <: write {text.strip().replace('=', '', 1)}.")
    value = parse_size(found["value"]) if metric in ("memory", "peak") else _number(found["value"])
    if value is None:
        example = "a size such as 2 GiB" if metric in ("memory", "peak") else "a number such as 0.1"
        wrong = f"{found['value']} is not" if found["value"] else f"Type behind {found['sign']}"
        return Refusal(f"{wrong} {example}.")
    return lambda number: SetBreakpoint(number, metric or "logged", value, above, name=logged)


def _logged_name(typed: str, text: str, state: RunState) -> str:
    """Return the name of the metric that the script logs; empty if it has logged none of that name."""
    names = {name.casefold(): name for name in state.metrics.by_name}
    if not typed.startswith(_LOGGED):
        return names.get(typed, "")
    bare = typed.removeprefix(_LOGGED).strip()
    # Until it is logged, it is called what was typed.
    at = text.casefold().find(bare)
    return names.get(bare, text[at : at + len(bare)])


def _some_names(state: RunState) -> str:
    names = [*state.metrics.by_name][:_NAMED]
    return f", or what the script logs, such as {', '.join(names)}" if names else ""


def _at_step(step: int, state: RunState) -> Make | Refusal:
    if step <= state.step:
        return Refusal(f"Step {step:,} is over: {state.step:,} steps have been executed.")
    return lambda number: SetBreakpoint(number, "step", step)


def _at_finding(rule: str) -> Make | Refusal:
    if not rule:
        return lambda number: SetBreakpoint(number, "finding")
    try:
        id_ = rule_named(rule).id
    except BadEntry as bad:
        return Refusal(f"{bad}.")
    return lambda number: SetBreakpoint(number, "finding", rule=id_)


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def listed(state: RunState) -> list[tuple[int, str]]:
    """Return the id and the condition of each breakpoint that is set, also of those that wait for their answer."""
    cleared = {command.breakpoint for command in state.pending.values() if isinstance(command, ClearBreakpoint)}
    waiting = [command for command in state.pending.values() if isinstance(command, SetBreakpoint)]
    return [
        (command.id, breakpoint_text(command))
        for command in (*state.breakpoints.values(), *waiting)
        if command.id not in cleared
    ]
