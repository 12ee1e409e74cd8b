"""Every fact about a row, in sentences under labels, with the numbers behind them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import OptimizerStateRead
from gradtui.protocol.vocabulary import STATE_NAMES, ModuleInfo, ParameterState, Setting
from gradtui.run.explanation.facts import Owner
from gradtui.run.explanation.page_facts import (
    BufferDetails,
    Curve,
    Details,
    GradientWay,
    Highest,
    ModuleDetails,
    NoNorm,
    Norm,
    ParameterDetails,
    Recomputed,
)
from gradtui.run.state.findings import Level
from gradtui.run.state.forecasts.forecast import gradient_bytes
from gradtui.run.text.explanation.backward import backward_words, kept_words, mode_words, model_lines
from gradtui.run.text.explanation.derivation import derivation_words
from gradtui.run.text.explanation.gradient_path import Stop, path_sentence, path_stops
from gradtui.run.text.explanation.sentences import BUFFER, CONTENDED, holding_text, passing_sentence, shard_words
from gradtui.run.text.explanation.states import STATE_MEANINGS, cause_sentence
from gradtui.run.text.gradients import adding_up_words, joint_words, sampled_words
from gradtui.run.text.models import same_storage_text
from gradtui.run.text.module_times import module_time_words
from gradtui.run.text.rank_norms import rank_norms_words
from gradtui.run.text.rows import rows_text
from gradtui.run.text.units import number_text, plural, shape_text, short_bytes
from gradtui.system.printable import printable


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


def page(found: ParameterDetails | ModuleDetails | BufferDetails) -> list[PageRow]:
    """Return every fact about a row of the tree."""
    if isinstance(found, BufferDetails):
        return _of_buffer(found)
    findings = [
        PageRow("" if index else "finding", f"{each.level} {each.rule}: {printable(each.message)}.", level=each.level)
        for index, each in enumerate(found.findings)
    ]
    return [*findings, *(_of_parameter(found) if isinstance(found, ParameterDetails) else _of_module(found))]


def _row(label: str, words: str | None, role: str = "text") -> list[PageRow]:
    return [PageRow(label, words, role)] if words is not None else []


def _of_buffer(found: BufferDetails) -> list[PageRow]:
    info = found.info
    kept = "is persistent: state_dict has it." if info.persistent else "is not persistent: state_dict leaves it out."
    return [
        *_row("state", "buffer", "strong"),
        *_row("", BUFFER),
        *_row("", f"It {kept}"),
        *_row("tensor", _tensor(info.shape, info.dtype, info.count, info.bytes)),
        *_row("module", _module_words(found.module)),
    ]


def _tensor(shape: tuple[int, ...], dtype: str, count: int, size: int) -> str:
    return f"{shape_text(shape)} {dtype}, {plural(count, 'element')}, {short_bytes(size)}"


def _of_parameter(details: ParameterDetails) -> list[PageRow]:
    row, info, path = details.row, details.info, _path(details)
    saved = kept_words(details.kept, details.backward, is_for_own=details.keeps_for_own)
    gradient, update = sampled_words(details.statistics)
    pending = [f"It will be {'unfrozen' if each else 'frozen'} at the next step boundary." for each in details.waiting]
    tied = (
        f"One tensor under {len(info.names)} names (tied); it counts once in every sum."
        if len(info.names) > 1
        else None
    )
    return [
        PageRow("state", STATE_NAMES[row.kind], "strong", row.kind),
        *_row("", STATE_MEANINGS[row.kind]),
        *_row("", cause_sentence(row.cause, is_followed=bool(path))),
        *(PageRow("pending", each, "pending") for each in pending),
        *_row("rows", rows_text(row.rows)),
        *_row("contending", CONTENDED if row.is_contended else None),
        *path,
        *_row("tensor", _tensor(info.shape, info.dtype, info.count, info.bytes)),
        *_row("", shard_words(details.shard)),
        *_row("", _stored(details)),
        *_row("names", printable(", ".join(info.names))),
        *_row("", tied, "muted"),
        *_row("memory", f"{printable(same_storage_text(details.shared))}." if details.shared is not None else None),
        *_row("module", _module_words(details.module)),
        *_row("", f"Saved in it: {_lower(saved)}", "muted"),
        *_row("optimizer", _owners(details)),
        *(each for owner in row.owners for each in _row("", _group(owner))),
        *_row("", _state_bytes(details.optimizer_state) if row.owners else None),
        *_row("gradient", _norm(details.norm)),
        *_row("", rank_norms_words(details.ranks)),
        *_row("", gradient),
        *_curve("norm", details.norms),
        *_row("update", update),
        *_curve("ratio", details.ratios),
        *_changes(details),
    ]


def _of_module(details: ModuleDetails) -> list[PageRow]:
    row, where, module = details.row, details.row.parameters, details.info
    sums, letters = details.sums, Counter(details.states)
    is_known = letters.total() > letters["-"]
    trainable = f"{sums.trainable:,} trainable" if is_known else "which train is not known yet"
    elements = f"{plural(sums.parameters, 'element')} ({trainable})"
    only = STATE_MEANINGS[ParameterState(next(iter(letters)))] if len(letters) == 1 and is_known else None
    gradient, update = joint_words(details.statistics)
    gradient_of_all, update_of_all = joint_words(details.of_all)
    waiting = len(details.waiting)
    return [
        *_row("type", printable(module.type_name), "strong"),
        *_row("contains", f"{module.subtree_modules - 1:,} modules" if module.subtree_modules > 1 else None),
        *_row(
            "parameters", f"{plural(len(where), 'tensor')}, {elements}, {short_bytes(sums.bytes)}" if where else "none"
        ),
        *_row("", shard_words(details.shard)),
        *(
            PageRow(
                "" if at else "states", f"{count:,} {STATE_NAMES[ParameterState(letter)]}", state=ParameterState(letter)
            )
            for at, (letter, count) in enumerate(letters.most_common())
        ),
        *_row("", f"Each of them: {_lower(only)}" if only is not None else None),
        *_path(details),
        *_row(
            "pending",
            f"{plural(waiting, 'tensor')} on the way to the next step boundary." if waiting else None,
            "pending",
        ),
        *_row("statistics", holding_text(row.holding)),
        *_row("backward", backward_words(row.backward)),
        *_row("ran", mode_words(details.mode)),
        *_row("time", module_time_words(row.time)),
        *_row("saved", kept_words(row.kept, row.backward, is_for_own=details.keeps_for_own)),
        *_row("recomputed", _recomputed(details.recomputed)),
        *_row("highest", _height(details.highest)),
        *_row("optimizer", _state_bytes(details.optimizer_state)),
        *_row("gradient", _norm(details.norm)),
        *_row("", passing_sentence(row.passing)),
        *_row("", gradient),
        *_row("update", update),
        *_row("all models", gradient_of_all),
        *_row("", update_of_all),
        *_row("adds up", adding_up_words(details.micro_steps)),
        *_curve("norm", details.norms),
        *_changes(details),
        *(PageRow(label, words) for label, words in model_lines(details)),
    ]


def _path(details: Details) -> list[PageRow]:
    way = details.way
    return [
        *_row("chain", path_sentence(way), "text" if isinstance(way, GradientWay) else "muted"),
        *(PageRow("", f"{stop.mark} {stop.name}  {stop.note}".rstrip(), stop=stop) for stop in path_stops(way)),
    ]


def _stored(details: ParameterDetails) -> str:
    row, size = details.row, gradient_bytes(details.info)
    if row.trainable and row.kind not in (ParameterState.UNREACHED, ParameterState.UNKNOWN):
        return f"Its gradient takes another {short_bytes(size)} between backward and zero_grad."
    if row.trainable is False:
        return f"No gradient is stored for it; trainable, it would take another {short_bytes(size)}."
    return f"A gradient for it takes another {short_bytes(size)}."


def _module_words(module: ModuleInfo) -> str:
    name, kind = printable(module.path or module.name), printable(module.type_name)
    return kind if name == kind else f"{name} ({kind})"


def _recomputed(found: Recomputed | None) -> str | None:
    if found is None:
        return None
    size = "How much was not seen" if found.bytes is None else short_bytes(found.bytes)
    kept = f"; the checkpoint keeps {short_bytes(found.inputs)} for that, its inputs" if found.inputs else ""
    return f"{size}: backward computes it again instead of autograd keeping it{kept} (step {found.step:,})."


def _height(found: Highest | None) -> str | None:
    if found is None:
        return None
    own = ", the highest of the whole step" if found.of_the_step else ""
    size = short_bytes(found.bytes)
    return f"{size} were held in all while it ran, forward or backward{own} (step {found.step:,})."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


_NO_NORM = {
    NoNorm.NO_BACKWARD: "No backward pass has been seen yet.",
    NoNorm.NOT_OWNED: "Not measured: a norm is read of what an optimizer has.",
    NoNorm.NO_GRADIENT: "No gradient in the last measured step.",
}


def _norm(found: Norm | NoNorm) -> str:
    if isinstance(found, NoNorm):
        return _NO_NORM[found]
    norm, step = number_text(found.value).strip(), f" at step {found.step:,}" if found.step is not None else ""
    if found.is_part:
        return f"L2 norm {norm}{step} of this rank's part; that of the whole is at least as high."
    total = number_text(found.total).strip() if found.total is not None else None
    share = f"; the norm of all gradients together was {total}" if total is not None else ""
    return f"L2 norm {norm}{step}{share}."


def _owners(details: ParameterDetails) -> str:
    row = details.row
    if not details.optimizers:
        is_by_hand = details.optimizers is None
        return "None has been seen: the script updates it by itself." if is_by_hand else "None has been seen yet."
    if not row.owners:
        return "In no optimizer, so no step moves it."
    names = ", ".join(f"{owner.type_name} (number {owner.number + 1})" for owner in row.owners)
    name = names if details.optimizers > 1 else row.owners[0].type_name
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


def _state_bytes(read: OptimizerStateRead | None) -> str | None:
    if read is None:
        return None
    if not read.bytes:
        return f"No optimizer keeps any state for it (step {read.step:,})."
    parts = ", ".join(f"{printable(name) or 'the rest'} {short_bytes(size)}" for name, size in read.entries)
    return f"State {short_bytes(read.bytes)}: {parts} (step {read.step:,})."


def _curve(what: str, curve: Curve | None) -> list[PageRow]:
    if curve is None:
        return []
    known = [value for value in curve.values if value is not None]
    low, high = number_text(min(known)).strip(), number_text(max(known)).strip()
    when = f"steps {curve.first:,} to {curve.last:,}" if curve.first != curve.last else f"step {curve.first:,}"
    return [PageRow("", f"{what} {low} to {high}, {when}", "muted", values=curve.values)]


def _changes(details: Details) -> Iterator[PageRow]:
    """Yield what a freeze or an unfreeze would change and where each number comes from, and what was done before."""
    for index, (label, words) in enumerate(
        derivation_words(details.derivation) if details.derivation is not None else ()
    ):
        yield PageRow(label, printable(words), "text" if index else "strong")
    if not details.toggles:
        yield PageRow("toggled", "Never, as far as gradtui knows.")
    for index, change in enumerate(details.toggles):
        yield PageRow("" if index else "toggled", f"At step {change.step:,}: {printable(change.text)}")
    if details.earlier_toggles:
        yield PageRow("", f"and {details.earlier_toggles:,} times before.", "muted")
