"""The state of a run as an HTML table for notebooks. Pure.

The table sets no background, and its text has the notebook's own colour. Coloured words have a contrast of 4:1 on white and on
the grey of dark notebooks, and are bold. Names come from the script and are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence, Set

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.findings import Level, open_findings
from gradtui.run.state.freshness import is_stale
from gradtui.run.state.memory.run_memory import memory_now, run_peak
from gradtui.run.state.model_records import reported_tree
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import joint_ratio, letters_of, newest_loss, row_parameters
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree.first_folds import first_folds, stacks_of
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.effects import change_results, change_words, counted_changes
from gradtui.run.text.explanation.states import STATE_WORDS
from gradtui.run.text.findings import finding_text
from gradtui.run.text.optimizers import newest_losses, newest_norms, of_step_text
from gradtui.run.text.units import DASH, bounded, number_text, plural, rate_text, size_text
from gradtui.system.printable import printable

MAX_ROWS = 40
_NAME_WIDTH = 60
_TEXT_WIDTH = 400
_FINDINGS = _CHANGES = 5
"""Rows of the table, characters of a name and of a sentence, findings and changes that are shown."""

STATE_COLOURS: dict[ParameterState, str] = {
    ParameterState.TRAINED: "#159048",
    ParameterState.ZERO: "#997908",
    ParameterState.UNREACHED: "#d15711",
    ParameterState.FLOW_THROUGH: "#1b85ba",
    ParameterState.CUT: "#6c7e99",
    ParameterState.ORPHAN: "#b86a0a",
    ParameterState.MOVED: "#dd3c8d",
    ParameterState.NOT_FINITE: "#e83a34",
    ParameterState.SKIPPED: "#8766e9",
}
"""By state: a colour of luminance 0.205, which has the same contrast on light and on dark."""
LEVEL_COLOURS = {
    Level.ERROR: STATE_COLOURS[ParameterState.NOT_FINITE],
    Level.WARNING: STATE_COLOURS[ParameterState.ORPHAN],
    Level.NOTE: STATE_COLOURS[ParameterState.CUT],
}

_COLUMNS = ("module", "parameters", "state", "gradient norm", "Δw/w")
_FLAGS = {"0": "frozen", "1": "trainable"}
"""The word for a parameter whose state no sampled step has determined yet, by its flag in `TreeState.trainable`."""


def run_html(state: RunState, *, is_over: bool = False) -> str:
    """Return the state of a run as HTML: progress, loss and memory, a table of the modules, open findings, the last changes.

    Args:
        state: the state of the run.
        is_over: nothing observes the run any longer.
    """
    tree = reported_tree(state)
    parts = [_facts(state, is_over=is_over), _table(tree) if tree.modules else "<p>No model has been found yet.</p>"]
    parts += _findings(state) + _changes(state)
    # MathJax typesets what is between two dollar signs, except in elements of these classes.
    return f'<div class="gradtui tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def _facts(state: RunState, *, is_over: bool) -> str:
    peak = run_peak(state)
    bound_of_norm = "≥ " if state.tree.is_sharded else ""
    facts = [
        f"<b>step {state.step:,}</b>" + (" (no longer watched)" if is_over else ""),
        "" if is_over or state.steps_per_second is None else rate_text(state.steps_per_second).strip(),
        f"loss <b>{html.escape(newest_losses(state)) or number_text(newest_loss(state)[0]).strip()}</b>",
        f"gradient norm {html.escape(newest_norms(state)) or bound_of_norm + _main_norm(state)}",
        f"memory {_size(memory_now(state))}, peak {DASH if peak is None else bounded(peak.bound, size_text(peak.bytes), ' ')}",
    ]
    return f"<p>{' · '.join(filter(None, facts))}</p>"


def _main_norm(state: RunState) -> str:
    norms = state.gradient_norm
    is_old = len(norms) > 0 and is_stale(state, norms.steps[-1])
    return number_text(norms.last).strip() + (of_step_text(state, norms.steps[-1]) if is_old else "")


def _size(size: int | None) -> str:
    return DASH if size is None else size_text(size)


def _table(tree: TreeState) -> str:
    stacks = stacks_of(tree.modules)
    rows = _rows(tree, stacks)
    shown = rows if len(rows) <= MAX_ROWS else rows[: MAX_ROWS - 1]
    body = [_row(tree, row, len(stacks.get(row, ())) if is_folded else 0) for row, is_folded in shown]
    if len(shown) < len(rows):
        body.append(f'<tr><td colspan="{len(_COLUMNS)}">… {len(rows) - len(shown):,} more rows</td></tr>')
    head = "".join(f'<th style="text-align:{_align(column)}">{name}</th>' for column, name in enumerate(_COLUMNS))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _rows(tree: TreeState, stacks: Mapping[int, Sequence[int]]) -> list[tuple[int, bool]]:
    """Return the rows, each with whether it is folded: modules with parameters, and by their inverted indexes the parameters
    that a module has besides those of its children."""
    own = [each.own_parameters if each.own_parameters < each.subtree_parameters else 0 for each in tree.modules]
    folded = first_folds(tree.modules, own, stacks, MAX_ROWS)
    rows = _walk(tree, own, folded)
    if len(rows) <= MAX_ROWS:
        return rows
    # The table does not scroll: what follows a stack that does not fit could not be reached.
    return _walk(tree, own, folded | {index for index in stacks if tree.modules[index].parent >= 0})


def _walk(tree: TreeState, own: Sequence[int], folded: Set[int]) -> list[tuple[int, bool]]:
    rows: list[tuple[int, bool]] = []
    index = 0
    while index < len(tree.modules):
        module, is_folded = tree.modules[index], index in folded
        if module.subtree_parameters:
            rows.append((index, is_folded))
            if not is_folded:
                rows += [(~(module.first_parameter + number), False) for number in range(own[index])]
        index += module.subtree_modules if is_folded else 1
    return rows


def _row(tree: TreeState, row: int, blocks: int) -> str:
    where = row_parameters(tree, row)
    if row < 0:
        path = tree.parameters[~row].path
        depth, name, kind = tree.modules[tree.parameters[~row].module].depth + 1, path.rpartition(".")[2], ""
    else:
        module = tree.modules[row]
        depth, path, kind = module.depth, module.path, f"×{blocks}" if blocks else module.type_name
        name = module.name or module.type_name
        kind = "" if kind == name else kind
    count = sum(tree.parameters[index].count for index in where)
    norm = joint_norm(tree.norms[where.start : where.stop]) if tree.norms is not None else None
    label = f"<b>{_escaped(name)}</b> {_escaped(kind)}" if row >= 0 else _escaped(name)
    cells = (
        f'<span style="padding-left:{min(depth, 20)}em" title="{_escaped(path, _TEXT_WIDTH)}">{label}</span>',
        f"{count:,}",
        _state(tree, where),
        number_text(norm).strip(),
        number_text(joint_ratio(tree, where)).strip(),
    )
    return "<tr>" + "".join(f'<td style="text-align:{_align(i)}">{cell}</td>' for i, cell in enumerate(cells)) + "</tr>"


def _align(column: int) -> str:
    return "left" if column in (0, 2) else "right"


def _state(tree: TreeState, where: range) -> str:
    states = [ParameterState(letter) for letter in letters_of(tree, where)]
    if states in ([], [ParameterState.UNKNOWN]):
        flags = set(tree.trainable[where.start : where.stop])
        return _FLAGS.get(flags.pop(), DASH) if len(flags) == 1 else DASH
    return ", ".join(_coloured(STATE_WORDS[state], STATE_COLOURS.get(state)) for state in states)


def _coloured(text: str, colour: str | None) -> str:
    return text if colour is None else f'<b style="color:{colour}">{text}</b>'


def _findings(state: RunState) -> list[str]:
    found = open_findings(state.findings)
    lines = [
        _coloured(each.level.value, LEVEL_COLOURS[each.level])
        + _escaped(finding_text(each).removeprefix(each.level.value), _TEXT_WIDTH)
        for each in found[:_FINDINGS]
    ]
    if len(found) > _FINDINGS:
        lines.append(f"… {plural(len(found) - _FINDINGS, 'more finding')}")
    return [f"<p>{'<br>'.join(lines)}</p>"] if lines else []


def _changes(state: RunState) -> list[str]:
    lines = []
    for change in counted_changes(state, _CHANGES):
        words = ": ".join(filter(None, (change_words(change), ", ".join(change_results(change)))))
        lines.append(f"step {change.step:,}: {_escaped(words, _TEXT_WIDTH)}")
    return [f"<p>{'<br>'.join(lines)}</p>"] if lines else []


def _escaped(text: str, width: int = _NAME_WIDTH) -> str:
    short = text if len(text) <= width else f"{text[: width - 1]}…"
    return html.escape(printable(short))
