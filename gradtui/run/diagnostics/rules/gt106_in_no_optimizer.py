"""GT106: trainable parameters get gradients, and no optimizer has them."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import are, elements, named, orphans_with_gradient, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import has_stepped, needs_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_STEPS = 3


def check(state: RunState) -> Iterator[Match]:
    """Match orphans with a gradient, once an optimizer has stepped a few times."""
    tree = state.tree
    orphans = orphans_with_gradient(tree)
    if not orphans or not has_stepped(state, _STEPS):
        return
    yield Match(
        f"{named(tree, orphans)} {are(orphans)} trainable and in no optimizer: the gradient is never applied",
        {"tensors": len(orphans), "elements": elements(tree, orphans)},
        paths(tree, orphans),
    )


RULE = Rule(
    "GT106",
    Level.ERROR,
    "trainable parameters are in no optimizer",
    "only an optimizer that has a parameter moves it, and zero_grad() of other optimizers never clears its gradient",
    "create the optimizer after the last change of the model, or call optimizer.add_param_group()",
    check,
    needs=needs_optimizer,
)
