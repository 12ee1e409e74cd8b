"""What a change has changed, in words: bytes, the duration of a step, parameters that joined an optimizer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol import commands
from gradtui.protocol.effects import Effect, TimeChange
from gradtui.state.changes import Change, ChangeStatus
from gradtui.text.commands import command_text
from gradtui.text.freezes import verified_result
from gradtui.text.units import plural, size_text, three_digits

_DONE = {
    "freeze": "froze",
    "unfreeze": "unfroze",
    "checkpoint": "checkpointed",
    "stop": "stopped",
    "put": "put",
    "set": "set",
    "train": "trains",
    "clear": "cleared",
    "skip": "skipped",
    "restore": "restored",
}
"""What becomes of the first word of `command_text` once the command is applied."""


def effect_results(effect: Effect) -> tuple[str, ...]:
    """Return what has changed, briefly: `92.7 → 99.3 MiB`, `196 → 220 ms ± 12`, `12 tensors joined Adam`."""
    joined = tuple(f"{plural(count, 'tensor')} joined {name}" for name, count in effect.joined)
    return (*_memory(effect, "peak ", ""), *_time(effect.time, ""), *joined, *_others(effect))


def effect_text(effect: Effect) -> str:
    """Return what has changed, as it follows the name of the change: `memory at the end of backward 92.7 → 99.3 MiB`."""
    joined = (f"{plural(count, 'tensor')} joined {name}" for name, count in effect.joined)
    parts = (*_memory(effect, "memory peak ", "memory at the end of backward "), *_time(effect.time, "step "), *joined)
    return ", ".join((*parts, *_others(effect)))


def time_text(change: TimeChange) -> str:
    """Return a change in the duration of a step with its margin: `196 → 220 ms ± 12`."""
    unit, size = next(
        ((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if change.before >= size), ("µs", 1e-6)
    )
    before, after, margin = (_number(seconds / size) for seconds in (change.before, change.after, change.margin))
    return f"{before} → {after} {unit} ± {margin}"


def sizes_text(before: int, after: int) -> str:
    """Return two sizes with their unit, which is named once if both have the same: `92.7 → 99.3 MiB`."""
    first, second = size_text(before), size_text(after)
    number, _, unit = first.partition(" ")
    return f"{number if second.endswith(' ' + unit) else first} → {second}"


def change_words(change: Change) -> str:
    """Return the name of a change: `froze blocks.7`, `undo: unfroze ctx`; before it is applied `freeze blocks.7`."""
    words = command_text(change.command)
    if change.status in (ChangeStatus.PENDING, ChangeStatus.REFUSED):
        return words
    if isinstance(change.command, commands.Undo):
        return f"undo: {change.text.partition(':')[0].partition(';')[0]}"
    verb, _, rest = words.partition(" ")
    return f"{_DONE.get(verb, verb)} {rest}"


def change_results(change: Change) -> tuple[str, ...]:
    """Return what came of a change, briefly."""
    if change.status is ChangeStatus.PENDING:
        return ("waits for the next step",)
    if change.status is ChangeStatus.REFUSED:
        return (f"refused: {change.text}",)
    results: list[str] = ["undone"] if change.status is ChangeStatus.UNDONE else []
    receipt = change.receipt
    if receipt is not None:
        results += effect_results(receipt.effect) if receipt.effect is not None else [receipt.text]
    if change.verified is not None:
        results.append(verified_result(change.verified))
    return tuple(results)


def _memory(effect: Effect, of_peak: str, of_total: str) -> Sequence[str]:
    before, after = effect.before, effect.after
    if before is None or after is None:
        return ()
    names = ["total" if before.peak is None or after.peak is None else "peak", "activations"]
    labels = {"peak": of_peak, "total": of_total, "activations": "activations "}
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in names}
    known = {name: pair for name, pair in pairs.items() if None not in pair}
    changed = [
        labels[name] + sizes_text(*pair)
        for name, pair in known.items()
        if name not in effect.within_noise and size_text(pair[0]) != size_text(pair[1])
    ]
    if changed or not known:
        return changed
    # Where some values could not be compared, nothing is said.
    is_whole = all(None not in pair or pair[1] is None for pair in pairs.values())
    return ["memory as before"] if is_whole else []


def _time(change: TimeChange | None, label: str) -> Sequence[str]:
    return (f"{label}{time_text(change)}",) if change is not None else ()


def _others(effect: Effect) -> Sequence[str]:
    return (f"together with {plural(effect.others, 'other change')}",) if effect.others else ()


def _number(value: float) -> str:
    return three_digits(value) if value < 999.5 else f"{value:,.0f}"
