"""GT110: modules run inside a model that does not register them, or tensors get gradients that nothing has registered."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import UnregisteredTensor
from gradtui.protocol.vocabulary import UnregisteredModule
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed, plural


def check(state: RunState) -> Iterator[Match]:
    """Match unregistered modules with trainable parameters, and tensors with a gradient, that no optimizer has."""
    lost: dict[str, list[UnregisteredModule]] = {}
    for module in state.unregistered:
        if module.trainable > module.in_optimizer:
            lost.setdefault(module.caller, []).append(module)
    for caller, modules in lost.items():
        count = sum(module.trainable - module.in_optimizer for module in modules)
        run, are = ("runs", "it is") if len(modules) == 1 else ("run", "they are")
        types = listed(list(dict.fromkeys(module.type_name for module in modules)))
        yield Match(
            f"{plural(len(modules), 'module')} ({types}) with {count:,} trainable elements {run} in {caller} without being "
            f"registered: {are} in no optimizer and in no state_dict",
            {"modules": len(modules), "elements": count},
            is_exact=True,
            key=caller,
        )
    found = state.evidence.unregistered_tensors
    held: dict[tuple[str | None, str | None], list[UnregisteredTensor]] = {}
    for tensor in found.tensors if found is not None else ():
        # Another tensor of the script may be an input, whose gradient is computed in vain.
        if tensor.is_parameter or tensor.of_module or tensor.is_joined:
            container = tensor.holder.partition("[")[0] if tensor.holder is not None else None
            held.setdefault((container, tensor.operation), []).append(tensor)
    for (container, _), tensors in held.items():
        yield _of_tensors(container, tensors)


def _of_tensors(container: str | None, tensors: list[UnregisteredTensor]) -> Match:
    first, holders = tensors[0], sorted(each.holder for each in tensors if each.holder is not None)
    elements, is_one = sum(each.elements for each in tensors), len(tensors) == 1
    kind = "nn.Parameter" if first.is_parameter else "plain tensor"
    what = f"{kind}{'' if is_one else 's'} of {plural(elements, 'element')}"
    if first.operation is not None:
        result = "the result" if is_one else "results"
        subject = f"{listed(holders)}, {result} of {first.operation.rstrip('0')} on {what},"
    else:
        subject = f"{listed(holders)} ({what})" if holders else f"{what} that no variable holds"
    gets, changes = ("gets a gradient", "changes") if is_one else ("get gradients", "change")
    since = min(each.since_step for each in tensors)
    return Match(
        f"{subject} {gets} since step {since:,} and never {changes}: in no optimizer and in no state_dict",
        {"holder": container, "tensors": len(tensors), "elements": elements},
        tuple(holders) if first.of_module else (),
        first_step=since,
        is_exact=True,
        level=None if first.is_parameter or first.of_module else Level.WARNING,
        remedy=_REMEDY_OF_A_RESULT if first.operation is not None else _REMEDY_OF_A_TENSOR,
        key=f"tensor {container}",
    )


_REMEDY_OF_A_RESULT = "convert the tensor first and make an nn.Parameter of it last: nn.Parameter(tensor.to(...))"
_REMEDY_OF_A_TENSOR = (
    "assign it to a module as an nn.Parameter, in an nn.ParameterList if there are several, or give it to the optimizer"
)

RULE = Rule(
    "GT110",
    Level.ERROR,
    "modules or tensors are used without being registered",
    "parameters() and state_dict() contain only modules and parameters that are attributes of a module or in its containers",
    "put the modules into an nn.ModuleList or nn.ModuleDict instead of a list or dict",
    check,
    needs=needs_sample,
)
