"""GT115: optimizers keep more state than they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from gradtui.run.diagnostics.parameters import elements, named, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_optimizer, optimizer_name
from gradtui.run.state.changes.toggles import freezes_in_force
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text import plural, size_text

_NAMED = 3
_CODE = "if they stay frozen, delete it: optimizer.state.pop(parameter, None)"
_ACTION = "if they stay frozen, choose Freeze and drop optimizer state in the palette, on their row"


def check(state: RunState) -> Iterator[Match]:
    """Match state of frozen parameters, and parameters that two optimizers which both step have in common."""
    unused = state.unused_state
    if unused is not None and unused.tensors:
        by_command = _frozen_by_command(state, unused.parameters)
        more = f" and {unused.tensors - _NAMED:,} more" if unused.tensors > _NAMED else ""
        yield Match(
            f"optimizers keep {size_text(unused.bytes)} of state for {plural(unused.tensors, 'frozen tensor')}, unused since "
            f"step {unused.since_step:,}: {', '.join(unused.parameters[:_NAMED])}{more}",
            {"tensors": unused.tensors, "bytes": unused.bytes, "since_step": unused.since_step},
            unused.parameters,
            first_step=unused.since_step,
            is_exact=True,
            remedy=_ACTION if by_command is not None else _CODE,
            command=f"freeze {by_command} state=drop" if by_command else None,
            key="frozen",
        )
    stepping = [
        (number, optimizer)
        for number, optimizer in enumerate(state.optimizers)
        if not optimizer.freed and number < len(state.optimizer_steps) and state.optimizer_steps[number]
    ]
    for (first, one), (second, other) in combinations(stepping, 2):
        common = sorted(set(one.parameters) & set(other.parameters))
        # A wrapper steps the optimizer within it.
        if common and other.groups_of != first:
            yield Match(
                f"{optimizer_name(state, first)} and {optimizer_name(state, second)} both own {named(state.tree, common)}",
                {"tensors": len(common), "elements": elements(state.tree, common)},
                paths(state.tree, common),
                is_exact=True,
                key=f"{first} {second}",
            )


def _frozen_by_command(state: RunState, parameters: Sequence[str]) -> str | None:
    """Return what the command named that froze these parameters, empty if several did; None if the script froze one of them."""
    freezes, infos = freezes_in_force(state.tree), state.tree.parameters
    found = {infos[index].path: each.selection for each in freezes for index in each.parameters if index < len(infos)}
    if any(path not in found for path in parameters):
        return None
    selections = {found[path] for path in parameters}
    only = selections.pop() if len(selections) == 1 else ""
    return only if only and only.isprintable() and " " not in only else ""


RULE = Rule(
    "GT115",
    Level.NOTE,
    "optimizers keep more state than they need",
    "an optimizer keeps its state, such as Adam's two moments, for every parameter that it has updated: freezing frees none of "
    "it, and of two optimizers each keeps its own",
    "give each parameter to one optimizer, unless the optimizers are meant to take turns",
    check,
    needs=needs_optimizer,
)
