"""Describe in words the modules that run inside a model without being registered with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import UnregisteredModule

_MAX_KINDS = 4


def unregistered_lines(modules: Sequence[UnregisteredModule], omitted: int = 0) -> list[str]:
    """Return two lines, without a full stop, for the modules of one type that one module calls.

    `omitted`: the number of further modules, which `modules` does not list.
    """
    groups: dict[tuple[str, str], list[UnregisteredModule]] = {}
    for module in modules:
        groups.setdefault((module.caller, module.type_name), []).append(module)
    lines = [line for group in list(groups.values())[:_MAX_KINDS] for line in _words(group)]
    left = len(groups) - _MAX_KINDS
    if left > 0:
        lines.append(f"{left:,} more kinds of unregistered modules")
    if omitted:
        lines.append(f"{omitted:,} more unregistered modules run, which gradtui does not list")
    return lines


def _words(group: Sequence[UnregisteredModule]) -> tuple[str, str]:
    caller, kind, total = group[0].caller, group[0].type_name, sum(module.parameters for module in group)
    left_out = f"parameters(), state_dict() and to() of {caller} leave"
    if len(group) == 1:
        what = f"{kind} ({total:,} parameters) runs inside {caller} but is not registered: {left_out} it out"
        remedy = f"to register {kind}, assign it to an attribute of a module"
    else:
        many = f"{len(group):,} × {kind} ({total:,} parameters)"
        what = f"{many} run inside {caller} but are not registered: {left_out} them out"
        remedy = "to register modules in a list, use nn.ModuleList"
    return what, f"{_training(group, total)}; {remedy}"


def _training(group: Sequence[UnregisteredModule], total: int) -> str:
    owned, trainable, with_gradient = (
        sum(getattr(each, name) for each in group) for name in ("in_optimizer", "trainable", "with_gradient")
    )
    if not trainable:
        return f"the parameters of {group[0].type_name} require no gradient"
    if owned:
        return f"an optimizer has {'the' if owned == total else f'{owned:,} of the'} parameters of {group[0].type_name}"
    return f"no optimizer has the parameters of {group[0].type_name}" + (
        ", although they get a gradient" if with_gradient else ""
    )
