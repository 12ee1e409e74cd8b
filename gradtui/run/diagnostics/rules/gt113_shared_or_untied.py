"""GT113: two Parameters over one storage are stepped twice, or tied weights are no longer tied."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.parameters import optimized
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match different Parameters of optimizers that share their memory, and copies where one tensor was meant."""
    tree, owned = state.tree, optimized(state)
    by_path = {info.path: index for index, info in enumerate(tree.parameters)}
    named: set[str] = set()
    for index, info in enumerate(tree.parameters):
        others = [path for path in info.same_storage if by_path.get(path) in owned]
        if index not in owned or not others or info.path in named or tree.trainable[index] != "1":
            continue
        named.update(others)
        yield Match(
            f"{info.path} and {', '.join(others)} are different Parameters over one storage: each step is applied "
            f"{'twice' if len(others) == 1 else f'{len(others) + 1} times'}",
            {"tensors": len(others) + 1},
            (info.path, *others),
            is_exact=True,
            key=f"shared {info.path}",
        )
    for untied in state.untied:
        yield Match(
            f"{untied.linear} and {untied.embedding} were equal at step {untied.equal_step:,} and are two tensors: "
            f"their values differ at step {untied.step:,} ({plural(untied.elements, 'element')})",
            {"elements": untied.elements, "equal_step": untied.equal_step, "different_step": untied.step},
            (untied.embedding, untied.linear),
            first_step=untied.equal_step,
            is_exact=True,
            level=Level.WARNING,
            key=f"untied {untied.linear}",
        )


RULE = Rule(
    "GT113",
    Level.ERROR,
    "tied weights are two Parameters",
    "the optimizer gives each of them its own update: over one storage both are applied, and copies drift apart",
    "tie weights by assigning the Parameter itself: head.weight = embedding.weight",
    check,
    needs=needs_sample,
)
