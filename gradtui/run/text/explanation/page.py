"""Every fact about a row, in sentences under labels, with the numbers behind them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import STATE_NAMES, BufferInfo, ParameterState, Setting
from gradtui.run.explanation.facts import Explanation, ModuleExplanation, Owner, ParameterExplanation
from gradtui.run.explanation.row import backward_in, explanation, kept_in, shard_of
from gradtui.run.state.changes.toggles import pending_parameters
from gradtui.run.state.findings import Level
from gradtui.run.state.forecasts.forecast import gradient_bytes
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.ranks.rank_norms import is_shard
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import has_trained, recomputed_bytes, toggles_of, total_norm_at, totals
from gradtui.run.state.series import joint_norm
from gradtui.run.state.tree.rows import buffer_at, findings_at
from gradtui.run.text.explanation.backward import backward_words, kept_words, mode_words, model_lines
from gradtui.run.text.explanation.derivation import derivation
from gradtui.run.text.explanation.gradient_path import Stop, path_sentence, path_stops
from gradtui.run.text.explanation.sentences import BUFFER, CONTENDED, holding_text, passing_sentence, shard_words
from gradtui.run.text.explanation.states import STATE_MEANINGS, cause_sentence
from gradtui.run.text.gradients import adding_up_words, gradient_words, joint_words, update_words
from gradtui.run.text.models import same_storage_text
from gradtui.run.text.module_times import module_time_words
from gradtui.run.text.rank_norms import rank_norms_words
from gradtui.run.text.rows import rows_text
from gradtui.run.text.units import number_text, plural, shape_text, short_bytes
from gradtui.system.printable import printable

_POINTS = 32
_CELLS = 100_000
"""The maximum number of norms joined for one curve: only `CurvesPanel` shows a subtree with more parameters."""
_TOGGLES = 8


@dataclass(frozen=True)
class PageRow:
    """A label, which is empty where that of the row above counts, and words."""

    label: str
    words: str
    role: str = "text"
    """How the words stand out: `text`, `strong`, `muted` or `pending`."""
    state: ParameterState | None = None
    """The state that the words name."""
    level: Level | None = None
    """The level of the finding that the words begin with."""
    stop: Stop | None = None
    """The words are a stop on the way of the gradient."""
    values: tuple[float | None, ...] = ()
    """A curve, which the words describe."""


def page(state: RunState, row: int) -> list[PageRow]:
    """Return every fact about a row of the tree (see `run.state.tree.rows`)."""
    buffer = buffer_at(state.tree, row)
    if buffer is not None:
        return _of_buffer(state, buffer)
    found = explanation(state, row)
    findings = [
        PageRow("" if index else "finding", f"{each.level} {each.rule}: {printable(each.message)}.", level=each.level)
        for index, each in enumerate(findings_at(state, row))
    ]
    if isinstance(found, ParameterExplanation):
        return [*findings, *_of_parameter(state, found)]
    return [*findings, *_of_module(state, found)] if isinstance(found, ModuleExplanation) else findings


def _row(label: str, words: str | None, role: str = "text") -> list[PageRow]:
    return [PageRow(label, words, role)] if words is not None else []


def _of_buffer(state: RunState, info: BufferInfo) -> list[PageRow]:
    kept = "is persistent: state_dict has it." if info.persistent else "is not persistent: state_dict leaves it out."
    return [
        *_row("state", "buffer", "strong"),
        *_row("", BUFFER),
        *_row("", f"It {kept}"),
        *_row("tensor", _tensor(info.shape, info.dtype, info.count, info.bytes)),
        *_row("module", _module_words(state, info.module)),
    ]


def _tensor(shape: tuple[int, ...], dtype: str, count: int, size: int) -> str:
    return f"{shape_text(shape)} {dtype}, {plural(count, 'element')}, {short_bytes(size)}"


def _of_parameter(state: RunState, row: ParameterExplanation) -> list[PageRow]:
    (index,), tree = row.parameters, state.tree
    info, ratios = tree.parameters[index], tree.ratios.of(index)
    path, storage = _path(state, row), same_storage_text(tree, index, state.optimizers)
    saved = kept_words(tree, info.module, kept_in(tree, info.module), backward_in(tree, info.module))
    wish = pending_parameters(state).get(index)
    pending = f"It will be {'unfrozen' if wish else 'frozen'} at the next step boundary." if wish is not None else None
    tied = (
        f"One tensor under {len(info.names)} names (tied); it counts once in every sum."
        if len(info.names) > 1
        else None
    )
    return [
        PageRow("state", STATE_NAMES[row.kind], "strong", row.kind),
        *_row("", STATE_MEANINGS[row.kind]),
        *_row("", cause_sentence(row.cause, is_followed=bool(path))),
        *_row("pending", pending, "pending"),
        *_row("rows", rows_text(row.rows)),
        *_row("contending", CONTENDED if row.is_contended else None),
        *path,
        *_row("tensor", _tensor(info.shape, info.dtype, info.count, info.bytes)),
        *_row("", shard_words(shard_of([info]))),
        *_row("", _stored(row, gradient_bytes(info))),
        *_row("names", printable(", ".join(info.names))),
        *_row("", tied, "muted"),
        *_row("memory", f"{printable(storage)}." if storage is not None else None),
        *_row("module", _module_words(state, info.module)),
        *_row("", f"Saved in it: {_lower(saved)}", "muted"),
        *_row("optimizer", _owners(state, row)),
        *(each for owner in row.owners for each in _row("", _group(owner))),
        *_row("", _state_bytes(state, row.path) if row.owners else None),
        *_row("gradient", _norm(state, row.parameters)),
        *_row("", rank_norms_words(state.job, index)),
        *_row("", gradient_words(state, index)),
        *_norms(state, row.parameters),
        *_row("update", update_words(state, index)),
        *_curve("ratio", ratios.steps[-_POINTS:], ratios.values[-_POINTS:]),
        *_changes(state, row),
    ]


def _of_module(state: RunState, row: ModuleExplanation) -> list[PageRow]:
    tree, where, module = state.tree, row.parameters, state.tree.modules[row.row]
    sums, letters = totals(tree, module), Counter(tree.states[where.start : where.stop])
    is_known = letters.total() > letters["-"]
    trainable = f"{sums.trainable:,} trainable" if is_known else "which train is not known yet"
    elements = f"{plural(sums.parameters, 'element')} ({trainable})"
    only = STATE_MEANINGS[ParameterState(next(iter(letters)))] if len(letters) == 1 and is_known else None
    gradient, update = joint_words(state, where)
    waiting = sum(index in where for index in pending_parameters(state))
    return [
        *_row("type", printable(module.type_name), "strong"),
        *_row("contains", f"{module.subtree_modules - 1:,} modules" if module.subtree_modules > 1 else None),
        *_row(
            "parameters", f"{plural(len(where), 'tensor')}, {elements}, {short_bytes(sums.bytes)}" if where else "none"
        ),
        *_row("", shard_words(shard_of(tree.parameters[where.start : where.stop]))),
        *(
            PageRow(
                "" if at else "states", f"{count:,} {STATE_NAMES[ParameterState(letter)]}", state=ParameterState(letter)
            )
            for at, (letter, count) in enumerate(letters.most_common())
        ),
        *_row("", f"Each of them: {_lower(only)}" if only is not None else None),
        *_path(state, row),
        *_row(
            "pending",
            f"{plural(waiting, 'tensor')} on the way to the next step boundary." if waiting else None,
            "pending",
        ),
        *_row("statistics", holding_text(row.holding)),
        *_row("backward", backward_words(row.backward)),
        *_row("ran", mode_words(state, row.row)),
        *_row("time", module_time_words(row.time)),
        *_row("saved", kept_words(tree, row.row, row.kept, row.backward)),
        *_row("recomputed", _recomputed(state, row.row)),
        *_row("highest", _height(state, row.row)),
        *_row("optimizer", _state_bytes(state, row.path)),
        *_row("gradient", _norm(state, where)),
        *_row("", passing_sentence(row.passing)),
        *_row("", gradient),
        *_row("update", update),
        *(_whole_run(state) if module.parent < 0 else []),
        *_norms(state, where),
        *_changes(state, row),
        *(PageRow(label, words) for label, words in model_lines(state, row.row)),
    ]


def _whole_run(state: RunState) -> list[PageRow]:
    everything = range(len(state.tree.parameters)) if len(state.tree.models) > 1 else range(0)
    gradient, update = joint_words(state, everything)
    return [
        *_row("all models", gradient),
        *_row("", update),
        *_row("adds up", adding_up_words(state)),
    ]


def _path(state: RunState, row: Explanation) -> list[PageRow]:
    stops = path_stops(state, row.path)
    is_known = row.path in state.tree.gradient_paths
    return [
        *_row("chain", path_sentence(state, row.path), "text" if is_known else "muted"),
        *(PageRow("", f"{stop.mark} {stop.name}  {stop.note}".rstrip(), stop=stop) for stop in stops),
    ]


def _stored(row: ParameterExplanation, size: int) -> str:
    if row.trainable and row.kind not in (ParameterState.UNREACHED, ParameterState.UNKNOWN):
        return f"Its gradient takes another {short_bytes(size)} between backward and zero_grad."
    if row.trainable is False:
        return f"No gradient is stored for it; trainable, it would take another {short_bytes(size)}."
    return f"A gradient for it takes another {short_bytes(size)}."


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


def _norm(state: RunState, parameters: range) -> str:
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


def _owners(state: RunState, row: ParameterExplanation) -> str:
    if not state.optimizers:
        return "None has been seen: the script updates it by itself." if state.step else "None has been seen yet."
    if not row.owners:
        return "In no optimizer, so no step moves it."
    names = ", ".join(f"{owner.type_name} (number {owner.number + 1})" for owner in row.owners)
    name = names if len(state.optimizers) > 1 else row.owners[0].type_name
    # A frozen parameter that stays in an optimizer keeps its momentum and averages there, unless the freeze dropped them.
    return f"In {name}, which keeps the state it has for it." if row.trainable is False else f"In {name}."


def _group(owner: Owner) -> str | None:
    settings = owner.settings
    if owner.group is None:
        return None
    if settings is None or owner.since is None:
        return f"Group {owner.group} of {owner.groups}." if owner.groups > 1 else None
    which = f"Group {owner.group} (of {owner.groups}, counted from 0)" if owner.groups > 1 else "Its only group"
    named = (("learning rate", settings.learning_rate), ("weight decay", settings.weight_decay))
    parts = [f"{name} {value:g}" for name, value in named if value is not None]
    parts += [_setting(name, value) for name, value in settings.further if value is not False]
    first, last = owner.since
    since = f"since step {last:,}" if first == last else f"since a step from {first:,} to {last:,}"
    return f"{which}: {', '.join(parts) or 'no learning rate that can be read'} ({since})."


def _setting(name: str, value: Setting) -> str:
    """Return a setting under the optimizer's name for it; a flag that is True by its name alone."""
    if value is True:
        return printable(name)
    numbers = value if isinstance(value, tuple) else (value,)
    words = ", ".join(f"{number:g}" for number in numbers)
    return f"{printable(name)} ({words})" if isinstance(value, tuple) else f"{printable(name)} {words}"


def _state_bytes(state: RunState, path: str) -> str | None:
    read = state.tree.optimizer_state.get(path)
    if read is None or not state.optimizers:
        return None
    if not read.bytes:
        return f"No optimizer keeps any state for it (step {read.step:,})."
    parts = ", ".join(f"{printable(name) or 'the rest'} {short_bytes(size)}" for name, size in read.entries)
    return f"State {short_bytes(read.bytes)}: {parts} (step {read.step:,})."


def _norms(state: RunState, parameters: range) -> list[PageRow]:
    history = shown_norms(state).history
    if len(parameters) * _POINTS > _CELLS:
        return []
    values = [joint_norm(row[parameters.start : parameters.stop]) for row in history.rows[-_POINTS:]]
    return _curve("norm", history.steps[-_POINTS:], values)


def _curve(what: str, steps: Sequence[int], values: Sequence[float | None]) -> list[PageRow]:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return []
    low, high = number_text(min(known)).strip(), number_text(max(known)).strip()
    when = f"steps {steps[0]:,} to {steps[-1]:,}" if steps[0] != steps[-1] else f"step {steps[0]:,}"
    return [PageRow("", f"{what} {low} to {high}, {when}", "muted", values=tuple(values))]


def _changes(state: RunState, row: Explanation) -> Iterator[PageRow]:
    """Yield what a freeze or an unfreeze would change and where each number comes from, and what was done before."""
    for index, (label, words) in enumerate(derivation(state, row.path, row.parameters)):
        yield PageRow(label, printable(words), "text" if index else "strong")
    applied = toggles_of(state, row.parameters)
    if not applied:
        yield PageRow("toggled", "Never, as far as gradtui knows.")
    for index, change in enumerate(applied[:_TOGGLES]):
        yield PageRow("" if index else "toggled", f"At step {change.step:,}: {printable(change.text)}")
    if len(applied) > _TOGGLES:
        yield PageRow("", f"and {len(applied) - _TOGGLES:,} times before.", "muted")
