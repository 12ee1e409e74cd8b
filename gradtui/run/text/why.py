"""Explain a parameter or a module in one or two sentences: why it trains or not, and how far a step moves it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import PROBLEM_STATES, GradientHop, ParameterState
from gradtui.run.state.aggregated_stats import aggregated_stats
from gradtui.run.state.freshness import is_stale, stale_norm_step, stale_ratio_steps
from gradtui.run.state.frontier import Frontier
from gradtui.run.state.job import NormRange
from gradtui.run.state.param_groups import rate_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import (
    MAX_JOINED,
    kept_for,
    measured_step,
    optimizers_of,
    saved_bytes,
    state_of,
    subtree,
    toggles_of,
)
from gradtui.run.state.tree_state import TreeState
from gradtui.run.state.usual_ratio import is_far_from_usual
from gradtui.run.text.freezes import contending_text, holding_text
from gradtui.run.text.frontier import backward_sentence
from gradtui.run.text.gradients import held_words, passing_words, ratio_words
from gradtui.run.text.module_times import module_time_sentence
from gradtui.run.text.parameters import STATE_WORDS, why_so
from gradtui.run.text.rank_norms import differing_words
from gradtui.run.text.rows import rows_text, rows_words
from gradtui.run.text.units import listed, short_bytes, short_rate, steps_of
from gradtui.system.printable import printable

_MEANINGS = {
    ParameterState.ZERO: "Its gradient is exactly zero: only weight decay or momentum can move it.",
    ParameterState.UNREACHED: "Its .grad is None when the optimizer steps.",
    ParameterState.FLOW_THROUGH: "Frozen: the gradient passes through its module.",
    ParameterState.CUT: "Frozen: backward never comes here, and no activations are kept.",
    ParameterState.ORPHAN: "No optimizer has it: no step of one moves it. If it gets a gradient, that keeps adding up.",
    ParameterState.MOVED: "Frozen, yet its values changed.",
    ParameterState.NOT_FINITE: "Its gradient or its values hold NaN or Inf.",
    ParameterState.UNKNOWN: "What happens to it is not known before a step is sampled.",
}
_NAMED = 2


def state_text(state: RunState, parameters: range) -> str:
    """Return the state of parameters in a few words: `trains since step 285`, `13 of 109 tensors train`."""
    if not parameters:
        return "no parameters"
    tree = state.tree
    letters = tree.states[parameters.start : parameters.stop]
    if letters.strip(letters[0]):
        flags = tree.trainable[parameters.start : parameters.stop]
        count = flags.count("1")
        return f"{count:,} of {len(parameters):,} tensors train" if count else "frozen"
    kind = ParameterState(letters[0])
    rows = tree.frozen_rows.get(parameters.start)
    if rows is not None and len(parameters) == 1 and kind is ParameterState.TRAINED:
        return rows_words(rows)
    changed = next((each for each in toggles_of(state, parameters) if each.changed), None)
    flag = tree.trainable[parameters.start] == "1"
    # The script may have changed it since the last command did.
    if changed is None or kind is ParameterState.UNKNOWN or any(part.trainable != flag for part in changed.changed):
        return STATE_WORDS[kind]
    return f"{STATE_WORDS[kind]} since step {changed.step:,}"


def parameter_sentences(state: RunState, index: int) -> list[str]:
    """Return why a parameter is in its state, the most important sentence first."""
    tree = state.tree
    sentences = state_sentences(state, index)
    contending = contending_text(tree, index)
    if contending is not None:
        sentences.append(contending)
    rows = rows_text(tree, index)
    if rows is not None:
        sentences.insert(0, rows)
    if tree.trainable[index] == "1":
        sentences += _way(state, tree.parameters[index].path)
        sentences += _owner(state, index)
    sentences += _unlike(state, range(index, index + 1))
    moves, own = moves_sentence(state, ~index), range(index, index + 1)
    return [*sentences, *((moves.text,) if moves is not None else ()), *_old_norm(state, own), *_held(state, own)]


@dataclass(frozen=True)
class Moves:
    """How far a step moves a row."""

    text: str
    is_far: bool
    """Whether that is far from what is usual."""


def moves_sentence(state: RunState, row: int) -> Moves | None:
    """Say how far a step moves a row (see `tree_rows`); None if that was not measured."""
    tree = state.tree
    if row < 0:
        curve, where = tree.ratios.of(~row), range(~row, ~row + 1)
        if not len(curve) or state_of(tree, ~row) is not ParameterState.TRAINED:
            return None
        step = curve.steps[-1]
        ratio, old = curve.values[-1], (step, step) if is_stale(state, step) else None
    else:
        where = subtree(tree.modules[row])
        joint = aggregated_stats(tree, where) if len(where) <= MAX_JOINED else None
        if joint is None or joint.update_ratio is None:
            return None
        ratio, old = joint.update_ratio, stale_ratio_steps(state, where)
    of = f" ({steps_of(*old)})" if old is not None else ""
    return Moves(f"Moves {ratio_words(ratio)}{of}.", is_far_from_usual(tree, where, ratio))


def state_sentences(state: RunState, index: int) -> list[str]:
    """Return what the state of a parameter means for it, and its cause; empty if its word says everything."""
    kind, cause = state_of(state.tree, index), why_so(state, index)
    if cause is not None and kind in (ParameterState.FLOW_THROUGH, ParameterState.UNKNOWN):
        return [f"Frozen. {cause}" if kind is ParameterState.FLOW_THROUGH else cause]
    return [text for text in (_MEANINGS.get(kind), cause) if text]


def module_sentences(
    state: RunState, index: int, line: Frontier | None = None, *, counts_problems: bool = True
) -> list[str]:
    """Return how backward runs in a module, what autograd keeps in it, and how far a step moves it.

    `line` is the frontier in all models, if the caller has it.
    """
    tree = state.tree
    where = subtree(tree.modules[index])
    problems = _problems(tree, where) if counts_problems else None
    sentences = [
        problems,
        holding_text(tree, index),
        *_unlike(state, where),
        backward_sentence(tree, index, line),
        passing_sentence(state, index),
        _kept(tree, index),
        module_time_sentence(state, index),
    ]
    moves = moves_sentence(state, index)
    if moves is not None:
        sentences.append(moves.text)
    return [sentence for sentence in (*sentences, *_old_norm(state, where), *_held(state, where)) if sentence]


def _old_norm(state: RunState, where: range) -> list[str]:
    """Return the step of the gradient norm if that is old."""
    step = stale_norm_step(state, where)
    return [f"Its gradient norm is of step {step:,}."] if step is not None else []


def _unlike(state: RunState, where: range) -> list[str]:
    """Return which norm differs most between the ranks of a job."""
    job, infos = state.job, state.tree.parameters
    unlike = {index: job.unlike_norms[index] for index in job.unlike_norms if index in where} if job is not None else {}
    if not unlike or job is None:
        return []
    worst = max(unlike, key=lambda index: _apart(unlike[index]))
    name = f"{printable(infos[worst].path)}: " if len(where) > 1 else ""
    return [f"{name}{differing_words(unlike[worst], len(job.ranks))}."]


def _apart(found: NormRange) -> tuple[bool, bool, float]:
    """Return how far norms are apart, to compare it."""
    is_finite = math.isfinite(found.high)
    return bool(found.missing), not is_finite, -found.low / found.high if is_finite and found.high else 0.0


def _held(state: RunState, where: range) -> list[str]:
    """Return how much of sharded parameters this rank holds."""
    if not state.tree.is_sharded or len(where) > MAX_JOINED:
        return []
    words = held_words(state.tree.parameters[where.start : where.stop])
    return [words] if words is not None else []


def _owner(state: RunState, index: int) -> list[str]:
    owners = optimizers_of(state, index)
    if not owners:
        return []
    info = state.optimizers[owners[0]]
    group = info.group_of[info.parameters.index(index)] if len(info.group_of) == len(info.parameters) else 0
    rate = rate_of(state, (owners[0], group))
    return [
        f"{info.type_name} owns it{f', lr {short_rate(rate)}' if rate is not None else ''}{_share(state, owners[0])}."
    ]


def _share(state: RunState, optimizer: int) -> str:
    """Return how many of the steps the optimizer has made, where others step too."""
    counts = state.optimizer_steps
    made = counts[optimizer] if optimizer < len(counts) else 0
    return f", and has made {made:,} of {state.step:,} steps" if sum(count > 0 for count in counts) > 1 and made else ""


def _way(state: RunState, path: str) -> list[str]:
    """Return through which modules the gradient comes, if the path of the gradient was read."""
    found = state.tree.gradient_paths.get(path)
    if found is None or not found.gradient.found:
        return []
    names = _names(state.tree, found.gradient.hops, found.module)
    return [f"The gradient comes through {listed(names, _NAMED)}."] if names else []


def _names(tree: TreeState, hops: Sequence[GradientHop], own: int) -> list[str]:
    modules = [tree.modules[hop.module] for hop in hops if hop.module >= 0 and hop.module != own]
    return [printable(path) for path in dict.fromkeys(module.path for module in modules) if path]


def _problems(tree: TreeState, where: range) -> str | None:
    letters = tree.states[where.start : where.stop]
    counts = {kind: letters.count(kind.value) for kind in ParameterState if kind in PROBLEM_STATES}
    found = [f"{count:,} {STATE_WORDS[kind].rstrip('!')}" for kind, count in counts.items() if count]
    return f"Of its {len(where):,} tensors: {listed(found)}." if found else None


def passing_sentence(state: RunState, index: int) -> str | None:
    """Describe the gradient that passes through a module, with its step if that is old; None if it was not read."""
    words = passing_words(state.tree, index)
    if words is None:
        return None
    step = measured_step(state.tree, index)
    return f"{words.rstrip('.')} ({steps_of(step, step)})." if is_stale(state, step) else words


def _kept(tree: TreeState, index: int) -> str | None:
    size = saved_bytes(tree, index)
    if not size:
        return None
    upstream = kept_for(tree, index)
    reason = f" for the gradient of {printable(tree.parameters[upstream].path)}" if upstream is not None else ""
    return f"Autograd keeps {short_bytes(size)} in it{reason}."
