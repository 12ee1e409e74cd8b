"""The help: keys from the table of actions, and the meaning of every letter, symbol and colour. Pure except for the dialog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtui.protocol.vocabulary import STATE_NAMES, ParameterState
from gradtui.state.markers import MarkerKind
from gradtui.text import STATE_MEANINGS
from gradtui.tui.actions import ACTIONS, Action, by_group
from gradtui.tui.panels import BEFORE_TRAINING, KINDS, PARTS
from gradtui.tui.rendering import BLANK, MARKERS, Line, Span, state_letter, wrap
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog
from gradtui.tui.tree import (
    CONCERNED,
    FREEZE,
    HIDDEN,
    MIXED,
    PARTLY,
    PASSES,
    RECOMPUTED,
    SPARK_WIDTH,
    STOPS,
    STOPS_TRAINS,
    TIED,
    TRAINS,
    UNFREEZE,
)
from gradtui.tui.widgets import FULL

_KEYS_WIDTH = 13
_NAMES_WIDTH, _NAMES_WIDTH_NARROW = 25, 18
_ROOM_FOR_COLUMNS = 90

_MARKS: tuple[tuple[str, str, str], ...] = (
    (FREEZE, "pending", "a freeze on its way to the next step boundary"),
    (UNFREEZE, "pending", "an unfreeze on its way"),
    (MIXED, "pending", "both, on different rows below"),
    (f"{TIED}2", "accent", "one tensor under two names (tied); it counts once"),
    ("▲", "warning", "the peak within a phase, where it is above what the phase ends with; ≥: at least that much"),
    (RECOMPUTED, "activations", "checkpointed: backward computes again what autograd does not keep there"),
    (
        CONCERNED,
        "error",
        "left of a row's state: an open finding concerns the row, or one folded up in it; ! goes there",
    ),
    ("–", "muted", "not known, or not there; never a zero"),
    ("×", "error", "NaN or Inf in a curve"),
    ("⠶", "curve-1", "in a curve: one sample; the dim line to the next sample was not measured"),
)

_MARKER_WORDS: dict[MarkerKind, str] = {
    MarkerKind.MODEL: "the run has a new model; a curve breaks where none of its models had trained before",
    MarkerKind.UNFREEZE: "parameters were unfrozen",
    MarkerKind.FREEZE: "parameters were frozen",
    MarkerKind.LEARNING_RATE: (
        "a command changed a learning rate, or it jumped by half or more; schedules that move it all the time are not marked"
    ),
    MarkerKind.CHECKPOINTING: "a command turned activation checkpointing on or off",
    MarkerKind.FINDING: "the first step of a confirmed finding",
}

_RAIL: tuple[tuple[str, str], ...] = (
    (TRAINS, "the gradient comes here from the loss, and parameters here train"),
    (PASSES, "the gradient only passes: it is computed for what is above"),
    (
        f"{STOPS_TRAINS} {STOPS}",
        "and here backward stops: nothing before this needs a gradient, or what is before is detached or under no_grad",
    ),
    (PARTLY, "the gradient comes to a part of what is in here"),
    (HIDDEN, "unknown: one operation stands for several modules (compiled, or a reentrant checkpoint)"),
    (" ", "no line: backward never comes here: no gradient is stored, and nothing is kept for it"),
)

_CATEGORY_NAMES = {
    "parameters": "what the model's parameters take",
    "buffers": "running statistics and other buffers",
    "gradients": "what .grad holds",
    "optimizer_state": "momentum, Adam's averages and the like",
    "activations": "what autograd keeps for backward",
    "input": "batches: what a model or a DataLoader was given or gave, unless autograd keeps it too",
    "offloaded": "saved on the host for backward; for models on a device also their tensors on the host, beside the total",
    "other": (
        "measured, but none of the above: temporary results, buffers that libraries (MKL, oneDNN) keep from the first step on, "
        "fragmentation; activations while they are unknown"
    ),
    BEFORE_TRAINING: "in no category at the first forward: Python, libraries, data; left out of curve and bar; narrow: pre",
}

_PART_NAMES = {BEFORE_TRAINING: "before training"}

_CURVE_WORDS: tuple[tuple[str, str], ...] = (
    (
        "curve within a step",
        "the total after each allocation and free of one step, in their order, less what was there before",
    ),
    ("per cent", "the share of the phase in the time of a step, which is also its width on the curve"),
    ("▲", "where the total is highest: the phase, and the module whose operation allocated last"),
    (
        "step, steps ago",
        "the step of the figures; t profiles the next one, and others follow as the budget allows",
    ),
)

_COLUMN_WORDS: tuple[tuple[str, str], ...] = (
    ("state, st", "the state of the parameter, or all states there are in the module; the letters stand above"),
    ("shape, type", "of the tensor"),
    ("train", "elements in the module that are trainable"),
    ("count, bytes", "elements, and what they take; a tensor with several names counts once"),
    ("saved", "bytes that autograd saves in the module for backward: its activations"),
    ("‖grad‖", "L2 norm of the gradient as the optimizer applied it"),
    (f"last {SPARK_WIDTH}", "how that norm went in the newest measurements, on a log scale of their own range"),
)

_FINDING_WORDS: tuple[tuple[str, str], ...] = (
    ("error", "the run does not do what its script asks for"),
    ("warning", "something is very likely not as intended"),
    ("note", "it may be intended, and is worth knowing"),
    ("open", "the numbers confirm it, and it is still so"),
    ("suspected", "it needs more samples; it is only in the list of findings"),
    ("cleared", "it was so, and no longer is"),
)

_HEADER_WORDS: tuple[tuple[str, str], ...] = (
    ("step · micro", "executed optimizer steps, and backward passes"),
    (
        "overhead",
        "host time of gradtui's hooks (in part an estimate), or device time where that is longer; its share of the step",
    ),
    ("ui", "share of one core that this screen takes; it draws less often to stay within its budget"),
)


def help_lines(width: int, actions: Iterable[Action] = ACTIONS) -> Sequence[Line]:
    """Return all lines of the help at a width; `actions` have their keys in force."""
    lines: list[Line] = []
    wide = width >= _ROOM_FOR_COLUMNS
    names = _NAMES_WIDTH if wide else _NAMES_WIDTH_NARROW
    for group, members in by_group(actions):
        lines += _heading(group)
        for action in members:
            name: Line = () if action.keys else ((f"{action.title}: ", "text"),)
            lines += _entry(((action.all_keys, "key"),), action.all_help, _KEYS_WIDTH, width, name)
    lines += _heading("States of a parameter")
    for state in ParameterState:
        letter: Line = (state_letter(state.value), (f"  {STATE_NAMES[state]}", "strong"))
        lines += _entry(letter, STATE_MEANINGS[state], names, width)
    lines += _heading("The line left of the names")
    for mark, words in _RAIL:
        lines += _entry(((mark, "gradients"),), words, _KEYS_WIDTH, width)
    lines += _meanings("Columns", _COLUMN_WORDS, names, width)
    lines += _heading("Memory")
    for category in PARTS:
        sample: Line = ((f"{FULL} ", category), (_PART_NAMES.get(category, category.replace("_", " ")), "text"))
        lines += _entry(sample, _CATEGORY_NAMES[category], names, width)
    lines += _meanings("Memory within a step", _CURVE_WORDS, names, width)
    lines += _heading("Marks")
    for mark, role, words in _MARKS:
        lines += _entry(((mark, role),), words, names, width)
    lines += _heading("Markers of the curves")
    for marker, words in _MARKER_WORDS.items():
        glyph, role = MARKERS[marker]
        lines += _entry(((glyph, role), (f"  {marker}", "text")), words, names, width)
    lines += _meanings("Findings", _FINDING_WORDS, names, width)
    lines += _heading("Events")
    for glyph, role, kind, meaning in KINDS.values():
        lines += _entry(((glyph, role), (f"  {kind}", "text")), meaning, names, width)
    lines += _meanings("Header", _HEADER_WORDS, names, width)
    return lines[1:]


def _heading(text: str) -> list[Line]:
    return [BLANK, ((text, "accent"),)]


def _meanings(heading: str, words: Sequence[tuple[str, str]], column: int, width: int) -> list[Line]:
    entries = (_entry(((word, "text"),), meaning, column, width) for word, meaning in words)
    return [*_heading(heading), *(line for entry in entries for line in entry)]


def _entry(left: Line, text: str, column: int, width: int, name: Line = ()) -> list[Line]:
    used = sum(len(part) for part, _ in left) + 2
    first, *rest = wrap((*name, (text, "muted")), max(20, width - column - 2))
    indent: Span = (" " * (column + 2), "")
    if used > column:
        return [((" " * 2, ""), *left), *((indent, *line) for line in (first, *rest))]
    gap: Span = (" " * (column - used + 2), "")
    return [((" " * 2, ""), *left, gap, *first), *((indent, *line) for line in rest)]


def help_dialog(actions: Sequence[Action]) -> TextDialog[None]:
    """Make the help dialog; `actions` have their keys in force."""
    return TextDialog("Help", DialogLines(lambda width: help_lines(width, actions)))
