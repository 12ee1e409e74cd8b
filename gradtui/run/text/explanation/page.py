"""Every fact about a row, in sentences under labels, with the numbers behind them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradtui.protocol.vocabulary import STATE_NAMES, ModuleInfo, ParameterState, Setting
from gradtui.run.explanation.details import BufferDetails, Curve, Details, ModuleDetails, NoNorm, ParameterDetails
from gradtui.run.explanation.facts import Owner
from gradtui.run.state.findings import Level
from gradtui.run.text.explanation.backward import backward_words, kept_words, ran_words
from gradtui.run.text.explanation.derivation import derivation
from gradtui.run.text.explanation.gradient_path import StopWords, path_sentence, stop_words
from gradtui.run.text.explanation.sentences import CONTENDED, holding_text, passing_words, shard_words
from gradtui.run.text.explanation.states import STATE_MEANINGS, cause_sentence
from gradtui.run.text.gradients import gradient_words, micro_step_words, update_words
from gradtui.run.text.models import record_text, same_storage_text
from gradtui.run.text.module_times import module_time_words
from gradtui.run.text.rank_norms import rank_norms_words
from gradtui.run.text.rows import rows_text
from gradtui.run.text.units import number_text, plural, shape_text, short_bytes
from gradtui.system.printable import printable

_TOGGLES, _EARLIER = 8, 8
_NO_NORM = {
    NoNorm.NO_BACKWARD: "No backward pass has been seen yet.",
    NoNorm.NO_OPTIMIZER: "Not measured: a norm is read of what an optimizer has.",
    NoNorm.NO_GRADIENT: "No gradient in the last measured step.",
}
BUFFER = "No gradient is computed for it, and no optimizer updates it. Only code writes to it."


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
    stop: StopWords | None = None
    """The words are a stop on the way of the gradient."""
    values: tuple[float | None, ...] = ()
    """A curve, which the words describe."""


def page(found: Details | BufferDetails) -> list[PageRow]:
    """Return every fact about a row."""
    if isinstance(found, BufferDetails):
        return _of_buffer(found)
    rows = _of_parameter(found) if isinstance(found, ParameterDetails) else []
    if isinstance(found, ModuleDetails):
        rows = _of_module(found)
    return [*_findings(found), *rows]


def _row(label: str, words: str | None, role: str = "text") -> list[PageRow]:
    return [PageRow(label, words, role)] if words is not None else []


def _findings(found: Details) -> Iterator[PageRow]:
    for index, each in enumerate(found.findings):
        words = f"{each.level} {each.rule}: {printable(each.message)}."
        yield PageRow("" if index else "finding", words, level=each.level)


def _of_buffer(found: BufferDetails) -> list[PageRow]:
    info = found.info
    kept = "is persistent: state_dict has it." if info.persistent else "is not persistent: state_dict leaves it out."
    return [
        *_row("state", "buffer", "strong"),
        *_row("", BUFFER),
        *_row("", f"It {kept}"),
        *_row("tensor", _tensor(info.shape, info.dtype, info.count, info.bytes)),
        *_row("module", module_words(found.module)),
    ]


def _tensor(shape: tuple[int, ...], dtype: str, count: int, size: int) -> str:
    return f"{shape_text(shape)} {dtype}, {plural(count, 'element')}, {short_bytes(size)}"


def _of_parameter(found: ParameterDetails) -> list[PageRow]:
    row, info = found.row, found.info
    names = f"One tensor under {len(info.names)} names (tied); it counts once in every sum."
    wish = next(iter(found.pending), None)
    pending = f"It will be {'unfrozen' if wish else 'frozen'} at the next step boundary." if wish is not None else None
    return [
        PageRow("state", STATE_NAMES[row.kind], "strong", row.kind),
        *_row("", STATE_MEANINGS[row.kind]),
        *_row("", cause_sentence(row.cause, is_followed=found.gradient_path is not None)),
        *_row("pending", pending, "pending"),
        *_row("rows", rows_text(row.rows)),
        *_row("contending", CONTENDED if row.is_contended else None),
        *_path(found),
        *_row("tensor", _tensor(info.shape, info.dtype, info.count, info.bytes)),
        *_row("", shard_words(found.shard)),
        *_row("", _stored(found)),
        *_row("names", printable(", ".join(info.names))),
        *_row("", names if len(info.names) > 1 else None, "muted"),
        *_row("memory", f"{printable(same_storage_text(found.storage))}." if found.storage is not None else None),
        *_row("module", module_words(found.module)),
        *_row("", f"Saved in it: {_lower(_kept(found))}", "muted"),
        *_row("optimizer", _owners(found)),
        *(each for owner in row.owners for each in _row("", _group(owner))),
        *_row("", _state_bytes(found) if row.owners else None),
        *_row("gradient", _norm(found)),
        *_row("", rank_norms_words(found.ranks)),
        *_row("", gradient_words(found.figures)),
        *_curve("norm", found.norms),
        *_row("update", update_words(found.figures)),
        *_curve("ratio", found.ratios),
        *_changes(found),
    ]


def _of_module(found: ModuleDetails) -> list[PageRow]:
    row, sums, tensors = found.row, found.totals, found.info.subtree_parameters
    is_known = any(kind is not ParameterState.UNKNOWN for kind, _ in found.states)
    trainable = f"{sums.trainable:,} trainable" if is_known else "which train is not known yet"
    elements = f"{plural(sums.parameters, 'element')} ({trainable})"
    inside = found.info.subtree_modules - 1
    meaning = (
        f"Each of them: {_lower(STATE_MEANINGS[found.states[0][0]])}" if len(found.states) == 1 and is_known else None
    )
    waiting = f"{plural(len(found.pending), 'tensor')} on the way to the next step boundary." if found.pending else None
    micro = micro_step_words(*found.micro_norms) if found.micro_norms is not None else None
    adding_up = (
        f"The norm of all gradients after each micro-step, before clipping: {micro}." if micro is not None else None
    )
    return [
        *_row("type", printable(found.info.type_name), "strong"),
        *_row("contains", f"{inside:,} modules" if inside else None),
        *_row(
            "parameters", f"{plural(tensors, 'tensor')}, {elements}, {short_bytes(sums.bytes)}" if tensors else "none"
        ),
        *_row("", shard_words(found.shard)),
        *(
            PageRow("" if at else "states", f"{count:,} {STATE_NAMES[kind]}", state=kind)
            for at, (kind, count) in enumerate(found.states)
        ),
        *_row("", meaning),
        *_path(found),
        *_row("pending", waiting, "pending"),
        *_row("statistics", holding_text(row.holding)),
        *_row("backward", backward_words(found.backward)),
        *_row("ran", ran_words(*found.ran) if found.ran is not None else None),
        *_row("time", module_time_words(row.time)),
        *_row("saved", _kept(found)),
        *_row("recomputed", _recomputed(found)),
        *_row("highest", _highest(found)),
        *_row("optimizer", _state_bytes(found)),
        *_row("gradient", _norm(found)),
        *_row("", passing_words(row.passing)),
        *_row("", gradient_words(found.figures)),
        *_row("update", update_words(found.figures)),
        *_row("all models", gradient_words(found.all_models)),
        *_row("", update_words(found.all_models)),
        *_row("adds up", adding_up),
        *_curve("norm", found.norms),
        *_changes(found),
        *_models(found),
    ]


def _path(found: Details) -> Iterator[PageRow]:
    path = found.gradient_path
    if path is None:
        return
    yield PageRow("chain", path_sentence(path), "text" if path.step is not None else "muted")
    for stop in stop_words(path):
        yield PageRow("", f"{stop.mark} {stop.name}  {stop.note}".rstrip(), stop=stop)


def _kept(found: Details) -> str:
    return kept_words(found.kept, found.backward, is_for_own=found.is_kept_for_own)


def _stored(found: ParameterDetails) -> str:
    size, row = short_bytes(found.gradient_bytes), found.row
    if row.trainable and row.kind not in (ParameterState.UNREACHED, ParameterState.UNKNOWN):
        return f"Its gradient takes another {size} between backward and zero_grad."
    if row.trainable is False:
        return f"No gradient is stored for it; trainable, it would take another {size}."
    return f"A gradient for it takes another {size}."


def module_words(module: ModuleInfo) -> str:
    """Return the path and the type of a module."""
    name, kind = printable(module.path or module.name), printable(module.type_name)
    return kind if name == kind else f"{name} ({kind})"


def _recomputed(found: ModuleDetails) -> str | None:
    if found.recomputed is None:
        return None
    again, inputs, step = found.recomputed
    size = "How much was not seen" if again is None else short_bytes(again)
    kept = f"; the checkpoint keeps {short_bytes(inputs)} for that, its inputs" if inputs else ""
    return f"{size}: backward computes it again instead of autograd keeping it{kept} (step {step:,})."


def _highest(found: ModuleDetails) -> str | None:
    if found.highest is None:
        return None
    size, is_peak, step = found.highest
    own = ", the highest of the whole step" if is_peak else ""
    return f"{short_bytes(size)} were held in all while it ran, forward or backward{own} (step {step:,})."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _norm(found: Details) -> str:
    norm = found.norm
    if isinstance(norm, NoNorm):
        return _NO_NORM[norm]
    words = f"L2 norm {number_text(norm.value).strip()}{f' at step {norm.step:,}' if norm.step is not None else ''}"
    if norm.is_part:
        return f"{words} of this rank's part; that of the whole is at least as high."
    total = (
        f"; the norm of all gradients together was {number_text(norm.total).strip()}" if norm.total is not None else ""
    )
    return f"{words}{total}."


def _owners(found: ParameterDetails) -> str:
    owners = found.row.owners
    if not found.optimizers:
        return "None has been seen: the script updates it by itself." if found.steps else "None has been seen yet."
    if not owners:
        return "In no optimizer, so no step moves it."
    names = ", ".join(f"{owner.type_name} (number {owner.number + 1})" for owner in owners)
    name = names if found.optimizers > 1 else owners[0].type_name
    # A frozen parameter that stays in an optimizer keeps its momentum and averages there, unless the freeze dropped them.
    return f"In {name}, which keeps the state it has for it." if found.row.trainable is False else f"In {name}."


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


def _state_bytes(found: Details) -> str | None:
    read = found.state_read
    if read is None:
        return None
    if not read.bytes:
        return f"No optimizer keeps any state for it (step {read.step:,})."
    parts = ", ".join(f"{printable(name) or 'the rest'} {short_bytes(size)}" for name, size in read.entries)
    return f"State {short_bytes(read.bytes)}: {parts} (step {read.step:,})."


def _curve(what: str, curve: Curve) -> Iterator[PageRow]:
    known = [value for value in curve.values if value is not None]
    if len(known) < 2:
        return
    low, high = number_text(min(known)).strip(), number_text(max(known)).strip()
    first, last = curve.steps[0], curve.steps[-1]
    when = f"steps {first:,} to {last:,}" if first != last else f"step {first:,}"
    yield PageRow("", f"{what} {low} to {high}, {when}", "muted", values=curve.values)


def _changes(found: Details) -> Iterator[PageRow]:
    """Yield what a freeze or an unfreeze would change and where each number comes from, and what was done before."""
    for index, (label, words) in enumerate(derivation(found.change)):
        yield PageRow(label, printable(words), "text" if index else "strong")
    if not found.toggles:
        yield PageRow("toggled", "Never, as far as this screen knows.")
    for index, (step, text) in enumerate(found.toggles[:_TOGGLES]):
        yield PageRow("" if index else "toggled", f"At step {step:,}: {printable(text)}")
    if len(found.toggles) > _TOGGLES:
        yield PageRow("", f"and {len(found.toggles) - _TOGGLES:,} times before.", "muted")


def _models(found: ModuleDetails) -> Iterator[PageRow]:
    """Yield what trains in the model and how it runs, and the same for models that are gone."""
    own, gone = (1, found.records[1:]) if found.is_listed else (0, found.records)
    for record in found.records[:own]:
        yield PageRow("model", f"{record_text(record)}.")
    for index, record in enumerate(gone[:_EARLIER]):
        words = f"{printable(record.name)} (step {record.step or 0:,}): {record_text(record)}."
        yield PageRow("" if index else "earlier", words)
    if len(gone) > _EARLIER:
        yield PageRow("", f"and {len(gone) - _EARLIER} before these.")
