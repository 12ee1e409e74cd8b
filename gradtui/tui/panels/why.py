"""The panel under the tree: why the selected row is in its state, and what a freeze or an unfreeze would change. UI thread.

Everything except the widget is pure. The widget computes the sentences again only if what they depend on has changed: for a row
with many parameters they cost more than a redraw may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from time import monotonic

from textual.content import Content

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import SetCheckpointing
from gradtui.protocol.forecasts import Change, ForecastAsked
from gradtui.run.explanation.row import explanation, passing_through
from gradtui.run.state.backward.frontier import Frontier
from gradtui.run.state.changes.toggles import ToggleEffect, toggle_effect
from gradtui.run.state.forecasts.forecast import MAX_PARAMETERS, forecast_change, question
from gradtui.run.state.freshness import stale_norm_step, stale_ratio_steps
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import MAX_JOINED, is_classified, row_parameters
from gradtui.run.state.time.module_times import are_times_old, module_time
from gradtui.run.state.tree.compiled import is_compiled
from gradtui.run.state.tree.rows import buffer_at, row_path
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.ending import ended_words
from gradtui.run.text.explanation.sentences import BUFFER, moves_sentence, sentences
from gradtui.run.text.explanation.states import state_text
from gradtui.run.text.forecast import (
    NOTHING_WOULD_TRAIN,
    checkpoint_clauses,
    forecast_clauses,
    objection_clause,
    shortage_clause,
    stay_frozen_clause,
)
from gradtui.run.text.units import plural
from gradtui.tui.actions import Action, keymap_of
from gradtui.tui.rendering import BLANK, Line, Span, fit, line_width, printable, wrap
from gradtui.tui.requests.confirmation import SECONDS, Confirmation
from gradtui.tui.widgets import LineView

_WAITING = (
    "The row under the tree's cursor is explained here, with what a freeze of it would change, once a model is found."
)
_NO_MODEL = "No model was found: there is no row to explain."
_LONG_S = 0.3
"""Seconds after which the title says that a forecast is being made."""
_DOT = "\N{NO-BREAK SPACE}·"
"""Ends a clause, so that no line begins with a dot."""


@dataclass(frozen=True)
class Why:
    """The text of the panel."""

    title: str
    sentences: tuple[str, ...] = ()
    """Why the row is in its state, the most important sentence first."""
    heading: tuple[Span, ...] = ()
    """What the clauses are about, such as `space would freeze it: `."""
    clauses: tuple[str, ...] = ()
    """What would change, the most important clause first."""
    question: ForecastAsked | None = None
    """What to ask the planner, so that the clauses become exact."""
    checkpoint: tuple[Line, ...] = ()
    """What checkpointing would change: one line, and shorter ones for where it does not fit. A blank one keeps its place until
    the planner has answered. It is shown only where room is left."""
    warning: str = ""
    """The one of the sentences and clauses that warns; empty if none does."""
    verb: str = ""
    """`freeze` or `unfreeze`: what the key does; empty where that is not known."""
    undo: str = ""
    """The clause that says how to take it back: the first to give way."""


def why(
    state: RunState,
    row: int | None,
    key: str = "space",
    line: Frontier | None = None,
    checkpoint_key: str = "c",
    undo_key: str = "u",
) -> Why:
    """Return the text for a row of the tree (see `tree_rows`).

    `key` freezes and unfreezes it, `checkpoint_key` checkpoints it, `undo_key` undoes the last change. `line` is
    the frontier in all models, if the caller has it.
    """
    tree = state.tree
    if row is None:
        return Why("Why", (_WAITING if state.ended is None else _NO_MODEL,))
    if (buffer := buffer_at(tree, row)) is not None:
        return Why(f"{printable(buffer.path)} · buffer", (BUFFER,))
    found = explanation(state, row, line)
    parameters, said = found.parameters, tuple(sentences(found))
    title = f"{printable(found.name)} · {state_text(found.state)}"
    if state.ended is not None:
        return Why(title, said, (), (f"{ended_words(state)}.",))
    warning = moves_sentence(found.moves) if found.moves is not None and found.moves.is_far else ""
    checkpoint, asked = _checkpointing(state, row, checkpoint_key)
    if not parameters:
        return Why(title, said, question=asked, checkpoint=checkpoint)
    if not is_classified(tree):
        return Why(title, said, ((key, "key"), (" freezes or unfreezes it once a step is sampled.", "muted")))
    effect = toggle_effect(state, found.path, parameters)
    undo = f"{undo_key} undoes it" if undo_key else "Undo reverts it"
    heading, clauses, first = _what_if(state, effect, parameters, key, undo)
    asked = asked if first is None else replace(first, then=asked)
    verb = _verb(trainable=effect.toggle.trainable) if effect.toggle is not None else ""
    return Why(title, said, heading, clauses, asked, checkpoint, warning, verb, undo)


def _what_if(
    state: RunState, effect: ToggleEffect, parameters: range, key: str, undo: str
) -> tuple[tuple[Span, ...], tuple[str, ...], ForecastAsked | None]:
    toggle, change = effect.toggle, effect.forecast
    if effect.pending is not None:
        return ((f"pending: {_verb(trainable=effect.pending)} at the next step", "pending"),), (), None
    if toggle is None:
        return (), ("Whether it trains is not known before the first step.",), None
    what = "what was frozen in it" if toggle.restores else "it"
    heading = ((key, "key"), (f" would {_verb(trainable=toggle.trainable)} {what}: ", "muted"))
    if effect.would_fail:
        return heading, (NOTHING_WOULD_TRAIN,), None
    if change is None:
        clauses = plural(len(parameters), "tensor"), "the first press says what changes, the second changes it"
        return heading, clauses, None
    if objection := objection_clause(change):
        return heading, (printable(objection),), None
    stay = (stay_frozen_clause(len(parameters) - len(toggle.parameters)),) if toggle.restores else ()
    return heading, (*forecast_clauses(change), *stay, undo), question(state, change)


def _checkpointing(state: RunState, row: int, key: str) -> tuple[tuple[Line, ...], ForecastAsked | None]:
    """Return what checkpointing a module would change, and the question to ask first; nothing where it would be refused."""
    tree = state.tree
    called = tree.gradient_flow.called if tree.gradient_flow is not None else ()
    # The model itself and a module that has no forward of its own are refused, and so is what is within a checkpointed one.
    if row < 0 or tree.modules[row].parent < 0 or row >= len(called) or called[row] < 0 or _is_within(tree, row):
        return (), None
    if is_compiled(tree, row):
        return (), None
    path, within = tree.modules[row].path, frozenset((row,))
    if any(isinstance(command, SetCheckpointing) and command.path == path for command in state.pending.values()):
        return (), None
    is_on = row in tree.checkpointed
    made = forecast_change(state, Change(keeps=within) if is_on else Change(checkpoints=within))
    if made.is_exact:
        verb = "no longer checkpoint" if is_on else "checkpoint"
        begin: Line = ((key, "key"), (f" would {verb} it: ", "muted"))
        parts = checkpoint_clauses(made)
        return tuple((*begin, (", ".join(parts[:count]), "text")) for count in range(len(parts), 0, -1)), None
    is_small = tree.modules[row].subtree_parameters <= MAX_PARAMETERS
    asked = question(state, made) if is_small else None
    return (() if asked is None else (BLANK,)), asked


def _is_within(tree: TreeState, module: int) -> bool:
    """Return whether a module around this one is checkpointed."""
    around = tree.modules[module].parent
    while around >= 0 and around not in tree.checkpointed:
        around = tree.modules[around].parent
    return around >= 0


def preview(state: RunState, asked: Confirmation, action: Action) -> Why:
    """Return the text that asks for a second press of the action's key, or to choose the action again if it has no key."""
    change = asked.forecast
    name = printable(row_path(state.tree, asked.row)) or "the model"
    verb = _verb(trainable=asked.trainable)
    begin, sign = ("Press ", action.key_text) if action.keys else ("Choose ", action.title)
    heading = ((begin, "strong"), (sign, "key"), (f" again to {verb} {name}: ", "strong"))
    until = "any other key cancels" if action.keys else f"to be chosen again within {SECONDS:.0f} seconds"
    tensors = plural(len(change.stops) + len(change.starts), "tensor")
    clauses = (tensors, *forecast_clauses(change, asked.state))
    clauses = (*clauses, stay_frozen_clause(asked.stay)) if asked.stay else clauses
    warning = shortage_clause(asked.lacks) if asked.lacks is not None else ""
    clauses = (warning, *clauses) if warning else clauses
    return Why(f"{name} · {verb}? ({until})", (), heading, clauses, warning=warning)


def why_lines(text: Why, width: int, height: int) -> list[Line]:
    """Lay out the text in at most `height` lines: the sentences, and what would change in the lower half at most, unless the
    sentences leave more room. Where not all that would change fits, it follows the first sentence and the one that warns
    in one paragraph. What
    checkpointing would change comes last, and moves nothing."""

    def above(sentences: Sequence[str]) -> list[Line]:
        return wrap(_sentence_spans(text, sentences), width) if sentences else []

    def below(clauses: Sequence[str]) -> list[Line]:
        spans = _clause_spans(text, clauses)
        return wrap(spans, width) if spans else []

    half, whole = -(-height // 2), below(text.clauses)
    upper = _fitted(text.sentences, above, width, height - min(half, len(whole)))
    warns = any(role == "warning" for line in upper for _, role in line) or text.warning not in text.sentences
    if text.sentences and (len(upper) + len(whole) > height or not warns):
        first = text.sentences[:1]
        gravest = tuple(each for each in text.sentences if each in (*first, text.warning))
        no_undo = tuple(clause for clause in text.clauses if clause != text.undo)
        for sentences, clauses in product(dict.fromkeys((gravest, first)), (text.clauses, no_undo)):
            spans = [*_sentence_spans(text, sentences), (" ", ""), *_clause_spans(text, clauses)]
            if len(paragraph := wrap(spans, width)) <= height:
                return paragraph
    lower = _fitted(text.clauses, below, width, height - len(upper))
    last = [line for line in text.checkpoint if line_width(line) <= width][:1]
    last = last if len(upper) + len(lower) < height else []
    gap = [BLANK] if upper and lower and len(upper) + len(lower) + len(last) < height else []
    return [*upper, *gap, *lower, *last]


def _sentence_spans(text: Why, sentences: Sequence[str]) -> list[Span]:
    last = len(sentences) - 1
    return [
        (sentence if index == last else f"{sentence} ", "warning" if sentence == text.warning else "text")
        for index, sentence in enumerate(sentences)
    ]


def _clause_spans(text: Why, clauses: Sequence[str]) -> list[Span]:
    """Return the heading and the clauses, with a mark of omission behind them if they are not all."""
    spans, is_cut = list(text.heading), any(each not in clauses and each != text.undo for each in text.clauses)
    for index, clause in enumerate(clauses):
        role = "error" if clause == NOTHING_WOULD_TRAIN else "warning" if clause == text.warning else "text"
        ending = f"{_DOT} " if index + 1 < len(clauses) else f"{_DOT} …" if is_cut else ""
        spans.append((f"{clause}{ending}", role))
    return spans


def why_text(text: Why) -> str:
    """Return the text as one paragraph."""
    change = "".join(words for words, _ in text.heading) + " · ".join(text.clauses)
    return " ".join((change, *text.sentences))


def _fitted(parts: Sequence[str], lines: Callable[[Sequence[str]], list[Line]], width: int, height: int) -> list[Line]:
    """Return the lines of as many parts as fit in `height` lines. The first part is cut if it does not fit."""
    made = lines(parts)
    for count in range(len(parts) - 1, 0, -1):
        if len(made) <= height:
            return made
        made = lines(parts[:count])
    if len(made) <= height:
        return made
    kept = made[: max(0, height)]
    return [*kept[:-1], fit((*kept[-1], (" ", ""), (made[height][0][0], "text")), width)] if kept else []


class WhyPanel(LineView):
    """Explains one row of the tree.

    Args:
        state: the run.
        frontier: returns the frontier in all models if it is known, as the tree does.
        ask_planner: asks for an exact forecast, which arrives as an event.
    """

    def __init__(
        self,
        state: RunState,
        frontier: Callable[[], Frontier | None] = lambda: None,
        ask_planner: Callable[[ForecastAsked], None] = lambda _: None,
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._state, self._frontier, self._ask_planner = state, frontier, ask_planner
        self._known: tuple[object, ...] = ()
        self._why = why(state, None)
        self._asked: ForecastAsked | None = None
        """The question that the planner has not answered yet."""
        self._asked_at = 0.0
        self.key = "space"
        """The key that freezes and unfreezes the row."""
        self.checkpoint_key = "c"
        """The key that checkpoints it."""
        self.undo_key = "u"
        """The key that undoes the last change; empty if there is none."""
        self.row: int | None = None
        """The row to explain (see `tree_rows`), None if there are no rows."""
        self.says_what_if = True
        """Whether it says what a key would change."""
        self.preview: Why | None = None
        """Shown instead: what a key would change, while a second press is awaited."""

    @property
    def explanation(self) -> Why:
        """The text for the row, as of the newest events."""
        facts = self._facts()
        if facts != self._known:
            self._known, self._why = facts, self._text()
            self._ask_forecast(self._why.question)
        return self._why

    def _ask_forecast(self, question: ForecastAsked | None) -> None:
        if question is not None:
            self._ask_planner(question)
        if question != self._asked:
            self._asked, self._asked_at = question, monotonic()
            if question is not None and self.is_attached:
                self.set_timer(_LONG_S, self.update)

    def _title(self, shown: Why) -> str:
        waits = shown is self._why and self._asked is not None and monotonic() - self._asked_at >= _LONG_S
        return f"{shown.title} · forecasting…" if waits else shown.title

    def _text(self) -> Why:
        text = why(self._state, self.row, self.key, self._frontier(), self.checkpoint_key, self.undo_key)
        return text if self.says_what_if else Why(text.title, text.sentences)

    @property
    def verb(self) -> str:
        """What the key does to the row, as of the last update: `freeze` or `unfreeze`; empty where that is not known."""
        return self._why.verb

    @property
    def paragraph(self) -> str:
        """The text as one paragraph."""
        return why_text(self.preview or self.explanation)

    def ask(self, asked: Confirmation | None) -> None:
        """Ask for a second press, or no longer."""
        action = keymap_of(self.app).action
        self.preview = preview(self._state, asked, action(asked.request)) if asked is not None else None
        self.update()

    def update(self) -> None:
        """Show the newest text. A title costs a repaint of the frame, so it is set only if it changed."""
        # Many callers draw this panel at once. Its lines show an error that its text raises.
        with suppress(Exception):
            shown = self.preview or self.explanation
            title = self._title(shown)
            if self.border_title != title:
                self.border_title = Content(title)
        self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        return why_lines(self.preview or self.explanation, width, height)

    def _facts(self) -> tuple[object, ...]:
        """Return what the text depends on, as far as it is cheap to compare; the values of single parameters come first."""
        state, tree, row = self._state, self._state.tree, self.row
        own: tuple[object, ...] = (row, self.key, self.checkpoint_key, self.undo_key)
        if row is not None and buffer_at(tree, row) is None:
            own = (
                *own,
                tree.gradient_paths.get(row_path(tree, row)),
                *tree.ratios.of(~row).values[-1:],
                *_ages(state, row),
            )
        saved, flow = tree.saved, tree.gradient_flow
        return (
            own, tree.version, tree.checkpointed, tree.trainable, tree.states, tree.reasons, tree.freezes,
            tuple(tree.frozen_rows.values()),
            state.optimizers, state.groups, _steps_of_several(state),
            (saved.by_module, saved.upstream) if saved is not None else None,
            (flow.reach, flow.grad_modes, flow.called) if flow is not None else None,
            (passing_through(state, row), module_time(tree, row), are_times_old(state))
            if row is not None and row >= 0
            else None,
            (state.job.common_step, len(state.job.unlike_norms)) if state.job is not None else None,
            state.operations, next(reversed(state.forecasts.values()), None),
            len(tree.gradient_figures), tuple(state.pending), state.intervention_count,
            ended_words(state) if state.ended is not None else "",
        )  # fmt: skip


def _ages(state: RunState, row: int) -> tuple[object, ...]:
    """Return the steps of the row's old values. A row of many parameters has no ratio."""
    parameters = row_parameters(state.tree, row)
    ratio = stale_ratio_steps(state, parameters) if len(parameters) <= MAX_JOINED else None
    return stale_norm_step(state, parameters), ratio


def _steps_of_several(state: RunState) -> tuple[int, ...]:
    """Return how many steps each optimizer has made; empty where only one steps, of which no count is told."""
    counts = tuple(state.optimizer_steps)
    return counts if sum(count > 0 for count in counts) > 1 else ()


def _verb(*, trainable: bool) -> str:
    return "unfreeze" if trainable else "freeze"
