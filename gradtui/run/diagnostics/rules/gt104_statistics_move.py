"""GT104: running statistics move in modules whose parameters are frozen."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.norm_modules import frozen_modules_in_train_mode, is_in_graph
from gradtui.run.diagnostics.parameters import needs_frozen
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match normalisation modules in train mode, frozen within the graph of a model that trains."""
    modules = [each for each in frozen_modules_in_train_mode(state, "running_mean") if is_in_graph(state, each)]
    if not modules:
        return
    names = tuple(state.tree.modules[index].path for index in modules)
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    yield Match(
        f"the running statistics of {names[0]}{more} move although their parameters are frozen: they are in train mode",
        {"modules": len(names)},
        names,
        command=f"freeze {names[0]}" if len(names) == 1 else None,
    )


RULE = Rule(
    "GT104",
    Level.WARNING,
    "running statistics of frozen modules move",
    "requires_grad = False does not stop running_mean and running_var: train mode updates them at every forward",
    "call eval() on the frozen modules after each train(), or freeze them with gradtui, which holds the statistics",
    check,
    needs=needs_frozen,
)
