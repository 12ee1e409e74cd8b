"""GT107: an optimizer owns tensors of no live module, and the model's parameters are in no optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import named, orphans_with_gradient, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import has_stepped, needs_optimizer, optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural

_STEPS = 3


def check(state: RunState) -> Iterator[Match]:
    """Match an optimizer with unknown tensors without new gradients, while parameters with a gradient are in no optimizer."""
    tree = state.tree
    orphans = orphans_with_gradient(tree)
    if not has_stepped(state, _STEPS):
        return
    for number, optimizer in enumerate(state.optimizers):
        replaced = optimizer.unknown_parameters - state.evidence.unlisted_tensors.get(number, 0)
        if orphans and replaced > 0 and not optimizer.freed:
            yield Match(
                f"{optimizer_name(state, number)} owns {plural(replaced, 'tensor')} of no live module, "
                f"and {named(tree, orphans)} {'is' if len(orphans) == 1 else 'are'} in none: "
                "replaced after the optimizer was made",
                {"tensors_of_no_module": replaced, "tensors_in_no_optimizer": len(orphans)},
                paths(tree, orphans),
                key=str(number),
            )


RULE = Rule(
    "GT107",
    Level.ERROR,
    "the optimizer has tensors that the model no longer has",
    "an optimizer keeps the tensors that it was given: it trains those of the module that was replaced",
    "create the optimizer after the last change of the model",
    check,
    explains=frozenset({"GT106"}),
    needs=needs_optimizer,
)
