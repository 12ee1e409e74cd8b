"""What becomes of freezes, in words: whether they hold, what moves, what the script sets back and what it saves. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gradtui.protocol.events import FreezeOverridden, FreezeVerified
from gradtui.protocol.vocabulary import ExtendedOptimizer
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.running_statistics import Kinds
from gradtui.run.text.units import listed, plural
from gradtui.system.printable import printable

_MAX_SAVED = 2
_SAVES_ALL = 'the command save_checkpoint saves the weights of all models: torch.load(FILE)["models"]'


def verified_text(event: FreezeVerified) -> str:
    """The receipt of a freeze: that it held, or what moved and why."""
    steps = plural(event.steps, "step")
    if event.rows and not event.moved:
        return f"{plural(event.rows, 'row')} and their optimizer state unchanged bit for bit for {steps}"
    if not event.moved:
        held = f", and so are the statistics of {plural(event.statistics, 'module')}" if event.statistics else ""
        return f"{plural(event.parameters, 'tensor')} unchanged bit for bit for {steps}{held}"
    by_cause: dict[str, list[str]] = {}
    for path, cause in zip(event.moved, event.causes or ("",) * len(event.moved)):
        by_cause.setdefault(cause, []).append(path)
    moved = [listed(paths) + (f" ({cause})" if cause else "") for cause, paths in by_cause.items()]
    if event.rows:
        return f"of {plural(event.rows, 'frozen row')} moved: {'; '.join(moved)}"
    return f"{len(event.moved)} of {plural(event.parameters, 'frozen tensor')} moved: {'; '.join(moved)}"


def verified_result(event: FreezeVerified) -> str:
    """Return the result of a verification briefly, beside the name of the freeze."""
    if event.moved:
        return "rows moved" if event.rows else f"{len(event.moved)} of {plural(event.parameters, 'tensor')} moved"
    return f"unchanged bit for bit for {plural(event.steps, 'step')}"


def statistics_words(kinds: Kinds, *, held: bool) -> str:
    """Return what becomes of modules' statistics: `2 BatchNorm1d modules hold their statistics`; empty for no modules."""
    if not kinds:
        return ""
    one = sum(count for _, count in kinds) == 1
    verb = ("holds its" if one else "hold their") if held else ("collects its" if one else "collect their")
    return f"{kinds_text(kinds)} module{'' if one else 's'} {verb} statistics{'' if held else ' again'}"


def kinds_text(kinds: Kinds) -> str:
    """Return types of modules with their numbers: `2 BatchNorm1d and 1 InstanceNorm2d`."""
    return " and ".join(f"{count:,} {printable(kind)}" for kind, count in kinds)


def contended_text(event: FreezeOverridden) -> str:
    """Return the message that the script sets parameters that the user froze back to trainable."""
    what = listed(event.paths) or "what was frozen"
    if event.given_up is not None:
        return f"the script has set {what} back to trainable, and gradtui leaves it trainable: {event.given_up}"
    times = f" ({event.times:,} times so far)" if event.times > 1 else ""
    return f"the script has set {what} back to trainable{times}; it is kept from moving"


def checkpoint_lines(state: RunState) -> list[str]:
    """What a checkpoint that the script saves now holds and lacks, and how to resume from it; empty without additions."""
    if state.extended is None:
        return []
    lines = [line for optimizer in state.extended.optimizers for line in _extended_words(optimizer)]
    added = [path for optimizer in state.extended.optimizers for path in optimizer.added]
    if added:
        lines.append(f"{_saved_by_script(added)} only if it saves the modules that own them")
    taken_out = state.extended.taken_out
    if taken_out:
        again = "trained while unfrozen, frozen again"
        lines.append(f"{_saved_by_script(taken_out)} ({again}) only if it saves the modules that own them")
    return [*lines, _SAVES_ALL] if lines else []


def _saved_by_script(paths: Sequence[str]) -> str:
    return f"the script's checkpoint holds the trained weights of {_saved_names(paths)}"


def _extended_words(optimizer: ExtendedOptimizer) -> tuple[str, str]:
    added = len(optimizer.added)
    return (
        f"{optimizer.type_name}'s state_dict() holds {optimizer.own + added:,} parameters: {optimizer.own:,} of the script and "
        f"{added:,} that an unfreeze added ({_saved_names(optimizer.added)})",
        f"a checkpoint of {optimizer.type_name} loads only after the same unfreeze: "
        "resume with this run's schedule (--schedule), or freeze before the script saves",
    )


def _saved_names(paths: Sequence[str]) -> str:
    """The paths, or where they are many the innermost module that holds all of them."""
    if len(paths) <= _MAX_SAVED:
        return ", ".join(paths)
    parts = [path.split(".") for path in paths]
    shared = [same[0] for same in itertools.takewhile(lambda same: len(set(same)) == 1, zip(*parts))]
    return f"{len(paths):,} tensors in {'.'.join(shared)}" if shared else listed(paths, _MAX_SAVED)
