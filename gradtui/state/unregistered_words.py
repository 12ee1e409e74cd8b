"""Modules that run inside a model without being registered with it, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import UnregisteredModule

_MOST_LINES = 4


def unregistered_lines(modules: Sequence[UnregisteredModule]) -> list[str]:
    """A line for the modules of one type that one module calls, without a full stop."""
    groups: dict[tuple[str, str], list[UnregisteredModule]] = {}
    for module in modules:
        groups.setdefault((module.caller, module.type_name), []).append(module)
    lines = [_words(group) for group in groups.values()]
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"{left:,} more kinds of unregistered modules"] if left > 0 else [])]


def _words(group: Sequence[UnregisteredModule]) -> str:
    caller, kind, total = group[0].caller, group[0].type_name, sum(module.parameters for module in group)
    if len(group) == 1:
        what, them = f"{kind} ({total:,} parameters) runs inside {caller} but is not registered with it", "it"
        remedy = "a module is registered where it is an attribute of another one"
    else:
        what = f"{len(group):,} × {kind} ({total:,} parameters) run inside {caller} but are not registered with it"
        them, remedy = "them", "a list of modules belongs in nn.ModuleList"
    return f"{what}: parameters(), state_dict() and to() of {caller} leave {them} out; {_training(group, total)} ({remedy})"


def _training(group: Sequence[UnregisteredModule], total: int) -> str:
    owned, trainable, with_gradient = (
        sum(getattr(each, name) for each in group) for name in ("in_optimizer", "trainable", "with_gradient")
    )
    if not trainable:
        return "these parameters require no gradient"
    if owned:
        return f"an optimizer has {'these' if owned == total else f'{owned:,} of these'} parameters"
    return "no optimizer has these parameters" + (", although they get a gradient" if with_gradient else "")
