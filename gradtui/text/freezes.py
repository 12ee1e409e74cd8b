"""What becomes of freezes, in words: whether they hold, what moves, and a script that sets them back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.events import FreezeOverridden, FreezeVerified
from gradtui.protocol.vocabulary import ModuleInfo
from gradtui.state.run_state import TreeState
from gradtui.text.units import plural

_MAX_NAMES = 3


def verified_text(event: FreezeVerified) -> str:
    """The receipt of a freeze: that it held, or what moved and why."""
    steps = plural(event.steps, "step")
    if not event.moved:
        held = f", and so did the statistics of {plural(event.statistics, 'module')}" if event.statistics else ""
        return f"{plural(event.parameters, 'tensor')} held still for {steps}{held}"
    by_cause: dict[str, list[str]] = {}
    for path, cause in zip(event.moved, event.causes or ("",) * len(event.moved)):
        by_cause.setdefault(cause, []).append(path)
    moved = [_names(paths) + (f" ({cause})" if cause else "") for cause, paths in by_cause.items()]
    return f"{len(event.moved)} of {plural(event.parameters, 'frozen tensor')} moved: {'; '.join(moved)}"


def contended_text(event: FreezeOverridden) -> str:
    """Return the message that the script sets parameters that the user froze back to trainable."""
    what = _names(event.paths) or "what was frozen"
    if event.given_up is not None:
        return f"the script has set {what} back to trainable and keeps it: {event.given_up}"
    times = f" ({event.times:,} times so far)" if event.times > 1 else ""
    return f"the script has set {what} back to trainable{times}; frozen again"


def contending_text(tree: TreeState, parameter: int) -> str | None:
    """What a parameter's row says of it, None where the script leaves it as it was frozen."""
    if tree.freezes is None or parameter not in tree.freezes.contending:
        return None
    return (
        "The script sets requires_grad back. It is frozen again at each step boundary, and a gradient that it has all the "
        "same is dropped before the optimizer's step: it does not move."
    )


def holding_text(tree: TreeState, index: int) -> str | None:
    """What a module's row says of running statistics that are held in it, None where none are."""
    held = tree.freezes.holding if tree.freezes is not None else ()
    module = tree.modules[index]
    within = [each for each in held if index <= each < index + module.subtree_modules]
    if not within:
        return None
    if within == [index]:
        return (
            "Held: it runs in eval mode in the script's forward and backward, normalises by its running statistics and "
            "does not collect any, until it is unfrozen."
        )
    kinds = _names(_kinds([tree.modules[each] for each in within]))
    return f"{plural(len(within), 'module')} in it ({kinds}) hold{'s' if len(within) == 1 else ''} running statistics still."


def _kinds(modules: Sequence[ModuleInfo]) -> list[str]:
    return list(dict.fromkeys(module.type_name for module in modules))


def _names(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_MAX_NAMES]) + (" …" if len(paths) > _MAX_NAMES else "")
