"""Explains a row, what happens to it and why, in sentences with the numbers behind them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradtui.protocol.vocabulary import STATE_NAMES, BufferInfo, ModuleInfo, ParameterState, Setting
from gradtui.run.state.forecast import gradient_bytes
from gradtui.run.state.rank_norms import is_shard
from gradtui.run.state.run_memory import above_load
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import (
    has_trained,
    optimizers_of,
    recomputed_bytes,
    state_of,
    subtree,
    toggles_of,
    total_norm_at,
    totals,
)
from gradtui.run.state.series import joint_norm
from gradtui.run.state.shown_norms import shown_norms
from gradtui.run.state.toggles import pending_parameters
from gradtui.run.text import (
    STATE_MEANINGS,
    contending_text,
    holding_text,
    number_text,
    plural,
    rows_text,
    same_storage_text,
    shape_text,
    short_bytes,
    why_so,
)
from gradtui.run.text.derivation import derivation
from gradtui.run.text.frontier import backward_words, mode_words, model_lines, saved_words
from gradtui.run.text.gradients import (
    adding_up_words,
    gradient_words,
    joint_gradient_words,
    joint_update_words,
    passing_words,
    shard_words,
    update_words,
)
from gradtui.run.text.module_times import module_time_words
from gradtui.run.text.rank_norms import rank_norms_words
from gradtui.tui.explanations.gradient_path_lines import chain_facts
from gradtui.tui.rendering import LEVEL_ROLES, DetailRow, Line, printable, sparkline, state_letter, text_rows
from gradtui.tui.tree import buffer_at, findings_at

_POINTS, _MIN = 32, 8
_CELLS = 100_000
"""The maximum number of norms joined for one curve: only `CurvesPanel` shows a subtree with more parameters."""
_TOGGLES = 8


def explain(state: RunState, row: int) -> list[DetailRow]:
    """Return every fact about a row of the tree (see `tree_rows`)."""
    buffer = buffer_at(state.tree, row)
    if buffer is not None:
        return _buffer(state, buffer)
    return [*_findings(state, row), *(_module(state, row) if row >= 0 else _parameter(state, ~row))]


def _findings(state: RunState, row: int) -> list[DetailRow]:
    return [
        DetailRow("" if index else "finding", (
            (f"{finding.level} {finding.rule}: ", LEVEL_ROLES[finding.level]), (f"{printable(finding.message)}.", "text")
        ))
        for index, finding in enumerate(findings_at(state, row))
    ]  # fmt: skip


def _buffer(state: RunState, info: BufferInfo) -> list[DetailRow]:
    tensor = f"{shape_text(info.shape)} {info.dtype}, {plural(info.count, 'element')}, {short_bytes(info.bytes)}"
    kept = (
        "It is persistent: state_dict has it." if info.persistent else "It is not persistent: state_dict leaves it out."
    )
    return [
        *text_rows("state", "buffer", "strong"),
        *text_rows("", "No gradient is computed for it, and no optimizer updates it. Only code writes to it."),
        *text_rows("", kept),
        *text_rows("tensor", tensor),
        *text_rows("module", _module_words(state, info.module)),
    ]


def _parameter(state: RunState, index: int) -> list[DetailRow]:
    info = state.tree.parameters[index]
    kind = state_of(state.tree, index)
    chain = chain_facts(state, ~index)
    tensor = f"{shape_text(info.shape)} {info.dtype}, {plural(info.count, 'element')}, {short_bytes(info.bytes)}"
    rows = [
        DetailRow("state", (state_letter(kind.value), (f" {STATE_NAMES[kind]}", "strong"))),
        *text_rows("", STATE_MEANINGS[kind]),
        *text_rows("", why_so(state, index, chained=bool(chain))),
        *text_rows("pending", _pending(state, index), "pending"),
        *text_rows("rows", rows_text(state.tree, index)),
        *text_rows("contending", contending_text(state.tree, index)),
        *chain,
        *text_rows("tensor", tensor),
        *text_rows("", shard_words([info])),
        *text_rows("", _stored(state, index, kind)),
        *text_rows("names", printable(", ".join(info.names))),
    ]
    if len(info.names) > 1:
        rows += text_rows("", f"One tensor under {len(info.names)} names (tied); it counts once in every sum.", "muted")
    rows += text_rows("memory", _same_storage(state, index))
    ratios = state.tree.ratios.of(index)
    rows += [
        *text_rows("module", _module_words(state, info.module)),
        *text_rows("", f"Saved in it: {_lower(saved_words(state, info.module))}", "muted"),
        *_optimizer_facts(state, index),
        *text_rows("gradient", _norm_words(state, range(index, index + 1))),
        *text_rows("", rank_norms_words(state.job, index)),
        *text_rows("", gradient_words(state, index)),
        *_norm_history(state, range(index, index + 1)),
        *text_rows("update", update_words(state, index)),
        *_curve("ratio", ratios.steps[-_POINTS:], ratios.values[-_POINTS:]),
        *_change_facts(state, info.path, range(index, index + 1)),
        *_toggle_facts(state, range(index, index + 1)),
    ]
    return rows


def _same_storage(state: RunState, index: int) -> str | None:
    words = same_storage_text(state.tree, index, state.optimizers)
    return f"{printable(words)}." if words is not None else None


def _module(state: RunState, index: int) -> list[DetailRow]:
    tree = state.tree
    module = tree.modules[index]
    sums = totals(tree, module)
    letters = Counter(tree.states[i] for i in subtree(module))
    known = letters.total() > letters["-"]
    trainable = f"{sums.trainable:,} trainable" if known else "which train is not known yet"
    elements = f"{plural(sums.parameters, 'element')} ({trainable})"
    parameters = f"{plural(module.subtree_parameters, 'tensor')}, {elements}, {short_bytes(sums.bytes)}"
    rows = text_rows("type", printable(module.type_name), "strong")
    if module.subtree_modules > 1:
        rows += text_rows("contains", f"{module.subtree_modules - 1:,} modules")
    rows += text_rows("parameters", parameters if module.subtree_parameters else "none")
    rows += text_rows("", shard_words([tree.parameters[i] for i in subtree(module)]))
    for i, (letter, count) in enumerate(letters.most_common()):
        words = f" {count:,} {STATE_NAMES[ParameterState(letter)]}"
        rows.append(DetailRow("" if i else "states", (state_letter(letter), (words, "text"))))
    if len(letters) == 1 and known:
        meaning = STATE_MEANINGS[ParameterState(next(iter(letters)))]
        rows += text_rows("", f"Each of them: {_lower(meaning)}")
    rows += chain_facts(state, index)
    waiting = sum(1 for i in pending_parameters(state) if i in subtree(module))
    if waiting:
        rows += text_rows("pending", f"{plural(waiting, 'tensor')} on the way to the next step boundary.", "pending")
    rows += [
        *text_rows("statistics", holding_text(tree, index)),
        *text_rows("backward", backward_words(state, index)),
        *text_rows("ran", mode_words(state, index)),
        *text_rows("time", module_time_words(state, index)),
        *text_rows("saved", saved_words(state, index)),
        *text_rows("recomputed", _recomputed(state, index)),
        *text_rows("highest", _height(state, index)),
        *_state_bytes(state, module.path),
        *text_rows("gradient", _norm_words(state, subtree(module))),
        *text_rows("", passing_words(tree, index)),
        *text_rows("", joint_gradient_words(state, subtree(module))),
        *text_rows("update", joint_update_words(state, subtree(module))),
        *_whole_run(state, module),
        *_norm_history(state, subtree(module)),
        *_change_facts(state, module.path, subtree(module)),
        *_toggle_facts(state, subtree(module)),
        *(row for label, words in model_lines(state, index) for row in text_rows(label, words)),
    ]
    return rows


def _whole_run(state: RunState, module: ModuleInfo) -> list[DetailRow]:
    if module.parent >= 0:
        return []
    everything = range(len(state.tree.parameters)) if len(state.tree.models) > 1 else range(0)
    return [
        *text_rows("all models", joint_gradient_words(state, everything)),
        *text_rows("", joint_update_words(state, everything)),
        *text_rows("adds up", adding_up_words(state)),
    ]


def _pending(state: RunState, index: int) -> str | None:
    wish = pending_parameters(state).get(index)
    return f"It will be {'unfrozen' if wish else 'frozen'} at the next step boundary." if wish is not None else None


def _stored(state: RunState, index: int, kind: ParameterState) -> str:
    size = short_bytes(gradient_bytes(state.tree.parameters[index]))
    if state.tree.trainable[index] == "1" and kind not in (ParameterState.UNREACHED, ParameterState.UNKNOWN):
        return f"Its gradient takes another {size} between backward and zero_grad."
    if state.tree.trainable[index] == "0":
        return f"No gradient is stored for it; trainable, it would take another {size}."
    return f"A gradient for it takes another {size}."


def _module_words(state: RunState, index: int) -> str:
    module = state.tree.modules[index]
    name, kind = printable(module.path or module.name), printable(module.type_name)
    return kind if name == kind else f"{name} ({kind})"


def _recomputed(state: RunState, index: int) -> str | None:
    found, saved = recomputed_bytes(state.tree, index), state.tree.saved
    if found is None or saved is None:
        return None
    again, inputs = found
    size = "How much was not seen" if again is None else short_bytes(again)
    kept = f"; the checkpoint keeps {short_bytes(inputs)} for that, its inputs" if inputs else ""
    return f"{size}: backward computes it again instead of autograd keeping it{kept} (step {saved.step:,})."


def _height(state: RunState, index: int) -> str | None:
    step = state.step_profile
    height = step.highest[index] if step is not None else None
    if step is None or height is None:
        return None
    own = ", the highest of the whole step" if height == step.peak else ""
    size = short_bytes(above_load(state, height))
    return f"{size} were held in all while it ran, forward or backward{own} (step {step.step:,})."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _norm_words(state: RunState, parameters: range) -> str:
    shown = shown_norms(state)
    norm = joint_norm(shown.norms[parameters.start : parameters.stop]) if shown.norms is not None else None
    if norm is None:
        if not has_trained(state):
            return "No backward pass has been seen yet."
        if all(state.tree.states[index] == ParameterState.ORPHAN.value for index in parameters):
            return "Not measured: a norm is read of what an optimizer has."
        return "No gradient in the last measured step."
    step = f" at step {shown.step:,}" if shown.step is not None else ""
    if shown.is_part and any(is_shard(state.tree.parameters[index]) for index in parameters):
        return f"L2 norm {number_text(norm).strip()}{step} of this rank's part; that of the whole is at least as high."
    total = total_norm_at(state, shown.step)
    share = f"; the norm of all gradients together was {number_text(total).strip()}" if total is not None else ""
    return f"L2 norm {number_text(norm).strip()}{step}{share}."


def _optimizer_facts(state: RunState, parameter: int) -> list[DetailRow]:
    rows = text_rows("optimizer", _owner_words(state, parameter))
    for index in optimizers_of(state, parameter):
        rows += text_rows("", _group_words(state, index, parameter))
    read = _state_bytes(state, state.tree.parameters[parameter].path) if optimizers_of(state, parameter) else []
    return rows + [DetailRow("", row.spans) for row in read]


def _owner_words(state: RunState, parameter: int) -> str:
    owners = optimizers_of(state, parameter)
    if not state.optimizers:
        return "None has been seen: the script updates it by itself." if state.step else "None has been seen yet."
    if not owners:
        return "In no optimizer, so no step moves it."
    names = ", ".join(f"{state.optimizers[i].type_name} (number {i + 1})" for i in owners)
    name = names if len(state.optimizers) > 1 else state.optimizers[owners[0]].type_name
    # A frozen parameter that stays in an optimizer keeps its momentum and averages there, unless the freeze dropped them.
    return (
        f"In {name}, which keeps the state it has for it." if state.tree.trainable[parameter] == "0" else f"In {name}."
    )


def _group_words(state: RunState, optimizer: int, parameter: int) -> str | None:
    info = state.optimizers[optimizer]
    if len(info.group_of) != len(info.parameters):
        return None
    group = info.group_of[info.parameters.index(parameter)]
    read = state.groups.optimizers if state.groups is not None else ()
    settings = read[optimizer][group] if optimizer < len(read) and group < len(read[optimizer]) else None
    if state.groups is None or settings is None:
        return f"Group {group} of {info.groups}." if info.groups > 1 else None
    which = f"Group {group} (of {info.groups}, counted from 0)" if info.groups > 1 else "Its only group"
    parts = [
        f"{name} {value:g}"
        for name, value in (("learning rate", settings.learning_rate), ("weight decay", settings.weight_decay))
        if value is not None
    ]
    parts += [_setting_words(name, value) for name, value in settings.further if value is not False]
    first, last = state.groups_since[optimizer, group]
    since = f"since step {last:,}" if first == last else f"since a step from {first:,} to {last:,}"
    return f"{which}: {', '.join(parts) or 'no learning rate that can be read'} ({since})."


def _setting_words(name: str, value: Setting) -> str:
    """Return a setting under the optimizer's name for it; a flag that is True by its name alone."""
    if value is True:
        return printable(name)
    numbers = value if isinstance(value, tuple) else (value,)
    words = ", ".join(f"{number:g}" for number in numbers)
    return f"{printable(name)} ({words})" if isinstance(value, tuple) else f"{printable(name)} {words}"


def _state_bytes(state: RunState, path: str) -> list[DetailRow]:
    read = state.tree.optimizer_state.get(path)
    if read is None or not state.optimizers:
        return []
    if not read.bytes:
        return text_rows("optimizer", f"No optimizer keeps any state for it (step {read.step:,}).")
    parts = ", ".join(f"{printable(name) or 'the rest'} {short_bytes(size)}" for name, size in read.entries)
    return text_rows("optimizer", f"State {short_bytes(read.bytes)}: {parts} (step {read.step:,}).")


def _norm_history(state: RunState, parameters: range) -> list[DetailRow]:
    history = shown_norms(state).history
    if len(parameters) * _POINTS > _CELLS:
        return []
    rows = history.rows[-_POINTS:]
    values = [joint_norm(row[parameters.start : parameters.stop]) for row in rows]
    return _curve("norm", history.steps[-_POINTS:], values)


def _curve(what: str, steps: Sequence[int], values: Sequence[float | None]) -> list[DetailRow]:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return []
    low, high = number_text(min(known)).strip(), number_text(max(known)).strip()
    when = f"steps {steps[0]:,} to {steps[-1]:,}" if steps[0] != steps[-1] else f"step {steps[0]:,}"
    words = f"  {what} {low} to {high}, {when}"

    def line(width: int) -> Line:
        points = min(len(values), max(_MIN, width - len(words)))
        return (*sparkline(values, points), (words, "muted"))

    return [DetailRow("", line=line)]


def _change_facts(state: RunState, path: str, parameters: range) -> list[DetailRow]:
    """What a freeze or an unfreeze would change, and where each number comes from."""
    first = True
    rows: list[DetailRow] = []
    for label, words in derivation(state, path, parameters):
        rows += text_rows(label, printable(words), "strong" if first else "text")
        first = False
    return rows


def _toggle_facts(state: RunState, parameters: range) -> list[DetailRow]:
    applied = toggles_of(state, parameters)
    if not applied:
        return text_rows("toggled", "Never, as far as this screen knows.")
    rows = []
    for index, change in enumerate(applied[:_TOGGLES]):
        rows += text_rows("" if index else "toggled", f"At step {change.step:,}: {printable(change.text)}")
    if len(applied) > _TOGGLES:
        rows += text_rows("", f"and {len(applied) - _TOGGLES:,} times before.", "muted")
    return rows
