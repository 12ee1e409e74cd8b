"""What a change has changed, in words: bytes, the duration of a step, parameters that joined an optimizer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradtui.protocol import commands
from gradtui.protocol.effects import Effect, TimeChange
from gradtui.protocol.events import ReceiptTaken
from gradtui.run.state.changes.changes import CHANGES_LISTED, Change, ChangeStatus, changes
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.run_state import RunState
from gradtui.run.text.commands import command_text
from gradtui.run.text.freezes import kinds_text, verified_result
from gradtui.run.text.tries import brief_result, progress_text
from gradtui.run.text.units import plural, short_number, size_text, unit_of_time

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
    "try": "tried",
}
"""What becomes of the first word of `command_text` once the command is applied."""

WHY_NOT_MEASURED = "there was no step before it to compare with"
NOT_MEASURED = f"not measured: {WHY_NOT_MEASURED}"

_UNSEEN = 10_000
"""A change by less than this part of a value is not shown."""

_BRIEF = {"peak": "peak ", "total": "", "activations": "activations "}
_LONG = {"peak": "memory peak ", "total": "memory at the end of backward ", "activations": "activations "}
"""By the name in `StepMemory`: what stands before the sizes."""


def effect_results(effect: Effect, forecast: Prediction | None = None, listed: int = 0) -> tuple[str, ...]:
    """Return what has changed, briefly: `92.7 → 99.3 MiB (forecast 99.3)`, `196 → 220 ms ± 12`, `12 tensors joined Adam`.

    `listed` of the other changes at the same boundary are named elsewhere.
    """
    joined = tuple(f"{plural(count, 'tensor')} joined {name}" for name, count in effect.joined)
    return (*_memory(effect, forecast, _BRIEF), *_time(effect, forecast, ""), *joined, *_others(effect.others - listed))


def largest_result(effect: Effect, forecast: Prediction | None = None) -> str | None:
    """Return the largest change of memory alone; None if no change of it was measured."""
    results = effect_results(effect, forecast)
    sizes = [abs(after - before) for before, after in _shown(effect, forecast).values()]
    return results[sizes.index(max(sizes))] if sizes else None


def effect_text(effect: Effect, forecast: Prediction | None = None) -> str:
    """Return what has changed, as it follows the name of the change: `memory at the end of backward 92.7 → 99.3 MiB`."""
    return ", ".join(effect_clauses(effect, forecast))


def effect_clauses(effect: Effect, forecast: Prediction | None = None) -> tuple[str, ...]:
    """Return what has changed, each value with its name."""
    joined = (f"{plural(count, 'tensor')} joined {name}" for name, count in effect.joined)
    return (*_memory(effect, forecast, _LONG), *_time(effect, forecast, "step "), *joined, *_others(effect.others))


def receipt_text(receipt: ReceiptTaken, forecast: Prediction | None) -> str:
    """Return the text of a receipt, with what was forecast behind what was measured."""
    # A receipt of the duration alone comes after that of the memory, and its text ends otherwise.
    measured = effect_text(receipt.effect) if receipt.effect is not None else ""
    if receipt.effect is None or not measured or not receipt.text.endswith(f": {measured}"):
        return receipt.text
    return receipt.text.removesuffix(measured) + effect_text(receipt.effect, forecast)


def receipt_texts(receipt: ReceiptTaken, forecast: Prediction | None) -> tuple[str, ...]:
    """Return shorter texts of a receipt, the longest first: its results briefly, and the largest change alone."""
    title, colon, _ = receipt.text.partition(": ")
    long = receipt_text(receipt, forecast)
    if receipt.effect is None or not colon or long == receipt.text:
        return ()
    largest = largest_result(receipt.effect, forecast)
    shorter = (" · ".join(effect_results(receipt.effect, forecast)), largest)
    return tuple(f"{title} · {words}" for words in shorter if words)


def counted(state: RunState, receipt: ReceiptTaken) -> ReceiptTaken:
    """Return a receipt without the bytes from before training, as the screen counts memory; its event has the allocator's."""
    effect = receipt.effect
    if effect is None or effect.before is None or effect.after is None or not state.held_since_load:
        return receipt
    before, after = (
        replace(
            side,
            total=None if side.total is None else above_load(state, side.total),
            peak=None if side.peak is None else above_load(state, side.peak),
        )
        for side in (effect.before, effect.after)
    )
    shown, measured = replace(effect, before=before, after=after), effect_text(effect)
    is_named = bool(measured) and receipt.text.endswith(measured)
    text = receipt.text.removesuffix(measured) + effect_text(shown) if is_named else receipt.text
    return replace(receipt, effect=shown, text=text)


def counted_changes(state: RunState, most: int = CHANGES_LISTED) -> list[Change]:
    """Return the newest changes as `changes` does, with their receipts as the screen counts memory, and with the outcome of
    the trials that some of them began."""
    return [
        replace(
            change,
            receipt=counted(state, change.receipt) if change.receipt is not None else None,
            text=answer_text(state, change.command, change.text),
        )
        for change in changes(state, most)
    ]


def trial_text(path: str, ranks: int) -> str:
    """Return the answer to a command that checkpoints a module if a trial succeeds, on all `ranks`."""
    trial = "the trials of all ranks agree" if ranks > 1 else "this step's trial agrees"
    return f"{_BEGIN}{path}{_IF}{trial}"


_BEGIN, _IF = "checkpoints ", ", if "


def answer_text(state: RunState, command: commands.Command, text: str) -> str:
    """Return the answer to a command. Of a command that began a trial, with what came of it, or that this is not known."""
    done, condition, _ = text.partition(_IF)
    if not isinstance(command, commands.SetCheckpointing) or not condition:
        return text
    receipt = state.receipts.get(command.id)
    if receipt is not None:
        return done if receipt.held else receipt.text
    path, is_undone = done.removeprefix(_BEGIN), any(each.undone == command.id for each in state.interventions)
    if is_undone or any(state.tree.modules[index].path == path for index in state.tree.checkpointed):
        return done
    return text if state.ended is None else f"{done}, unless its trial failed: the run ended before that was known"


def time_text(change: TimeChange) -> str:
    """Return a change in the duration of a step with its margin: `196 → 220 ms ± 12`."""
    unit, size = unit_of_time(change.before)
    before, after, margin = (short_number(seconds / size) for seconds in (change.before, change.after, change.margin))
    return f"{before} → {after} {unit} ± {margin}"


def sizes_text(before: int, after: int) -> str:
    """Return two sizes with their unit, which is named once if both have the same: `92.7 → 99.3 MiB`.

    Where their digits are the same, that is `24.3 MiB, 16.2 KiB less`.
    """
    first, second = size_text(before), size_text(after)
    if first == second and before != after:
        return f"{second}, {size_text(abs(after - before))} {'less' if after < before else 'more'}"
    number, _, unit = first.partition(" ")
    return f"{number if second.endswith(' ' + unit) else first} → {second}"


def title_of_answer(text: str) -> str:
    """Return what an answer to a command says was done, without its figures: the part before the first `: ` or `;`.

    A colon without a space belongs to a selection: `trains only :head: 1 tensor`.
    """
    return text.partition(": ")[0].partition(";")[0]


def change_words(change: Change) -> str:
    """Return the name of a change: `froze blocks.7`, `undo: unfroze ctx`; before it is applied `freeze blocks.7`."""
    words = command_text(change.command)
    if change.status in (ChangeStatus.PENDING, ChangeStatus.REFUSED):
        return words
    if isinstance(change.command, commands.Undo):
        return f"undo: {title_of_answer(change.text)}"
    if isinstance(change.command, commands.ReturnToState):
        return title_of_answer(change.text)
    verb, _, rest = words.partition(" ")
    more = f" and {change.more} more" if change.more else ""
    return f"{_DONE.get(verb, verb)} {rest}{more}"


def change_results(change: Change, *, only_largest: bool = False) -> tuple[str, ...]:
    """Return what came of a change, briefly; with `only_largest`, no more of what was measured than the largest change."""
    if change.status is ChangeStatus.PENDING:
        return (progress_text(change.trial) if change.trial is not None else "waits for the next step",)
    if change.status is ChangeStatus.REFUSED:
        return (f"refused: {change.text}",)
    receipt = change.receipt
    results: list[str] = ["undone"] if change.status is ChangeStatus.UNDONE else []
    if change.status is ChangeStatus.APPLIED:
        held, free = (
            (" in eval", " out of eval") if only_largest else (" held in eval mode", " no longer held in eval mode")
        )
        results += [kinds_text(change.holds) + held] if change.holds else []
        results += [brief_result(change.text)] if isinstance(change.command, commands.TryChange) else []
        results += [kinds_text(change.releases) + free] if change.releases else []
        # Before its first step every run lacks what to compare with.
        results += [NOT_MEASURED] if change.step == 0 and not change.is_measured and receipt is None else []
    if receipt is not None:
        results += _results(receipt, change, only_largest=only_largest)
    if change.verified is not None:
        results.append(verified_result(change.verified))
    return tuple(results)


def _results(receipt: ReceiptTaken, change: Change, *, only_largest: bool) -> Sequence[str]:
    if receipt.effect is None:
        return (receipt.text,)
    largest = largest_result(receipt.effect, change.forecast) if only_largest else None
    return (largest,) if largest is not None else effect_results(receipt.effect, change.forecast, change.more)


def _memory(effect: Effect, forecast: Prediction | None, labels: Mapping[str, str]) -> Sequence[str]:
    before, after = effect.before, effect.after
    if before is None or after is None:
        return ()
    shown = _shown(effect, forecast)
    pairs = _pairs(effect)
    if shown or all(None in pair for pair in pairs.values()):
        return [labels[name] + sizes_text(*pair) + _forecast(effect, forecast, name) for name, pair in shown.items()]
    # Where some values could not be compared, nothing is said.
    is_whole = all(None not in pair or pair[1] is None for pair in pairs.values())
    return ["memory as before"] if is_whole else []


def _shown(effect: Effect, forecast: Prediction | None) -> dict[str, tuple[int, int]]:
    """Return the values that have changed, or of which a change was forecast: those before and after."""
    found = {}
    for name, (before, after) in _pairs(effect).items():
        if before is None or after is None:
            continue
        has_changed = name not in effect.within_noise and abs(after - before) > before // _UNSEEN
        expected = _expected(effect, forecast, name)
        if has_changed or (expected is not None and size_text(expected) != size_text(before)):
            found[name] = before, after
    return found


def _pairs(effect: Effect) -> dict[str, tuple[int | None, int | None]]:
    """Return the values that a receipt compares: those before and after."""
    before, after = effect.before, effect.after
    if before is None or after is None:
        return {}
    has_peaks = before.peak is not None and after.peak is not None and "peak" not in effect.within_noise
    names = ["peak" if has_peaks else "total", "activations"]
    return {name: (getattr(before, name), getattr(after, name)) for name in names}


def _expected(effect: Effect, forecast: Prediction | None, name: str) -> int | None:
    # What other changes at the same boundary did may not have been forecast with this one.
    if forecast is None or effect.before is None or effect.others != forecast.others:
        return None
    return forecast.after(name, effect.before)


def _forecast(effect: Effect, forecast: Prediction | None, name: str) -> str:
    """Return ` (forecast 99.3)`, with its unit where that is another one than the one before it."""
    expected = _expected(effect, forecast, name)
    if expected is None or forecast is None:
        return ""
    number, _, unit = size_text(expected).partition(" ")
    same = size_text(getattr(effect.after, name)).endswith(f" {unit}")
    about = "" if name != "peak" and forecast.is_exact else "about "
    return f" (forecast {about}{number}{'' if same else f' {unit}'})"


def _time(effect: Effect, forecast: Prediction | None, label: str) -> Sequence[str]:
    change = effect.time
    if change is None:
        return ()
    ratio = forecast.duration_ratio if forecast is not None and effect.others == forecast.others else None
    _, size = unit_of_time(change.before)
    expected = f" (forecast about {short_number(change.before * ratio / size)})" if ratio is not None else ""
    return (f"{label}{time_text(change)}{expected}",)


def _others(count: int) -> Sequence[str]:
    return (f"together with {plural(count, 'other change')}",) if count > 0 else ()
