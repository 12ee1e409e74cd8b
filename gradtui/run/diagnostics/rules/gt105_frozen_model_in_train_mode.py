"""GT105: a frozen model, or frozen modules under no_grad, run in train mode."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.norm_modules import frozen_modules_in_train_mode, is_in_graph
from gradtui.run.diagnostics.parameters import needs_frozen
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match dropout and running statistics of frozen modules that are in no graph of a model that trains."""
    tree = state.tree
    random = [each for each in frozen_modules_in_train_mode(state, "Dropout") if not is_in_graph(state, each)]
    moving = [each for each in frozen_modules_in_train_mode(state, "running_mean") if not is_in_graph(state, each)]
    if not random and not moving:
        return
    names = tuple(tree.modules[index].path or tree.modules[index].name for index in (*random, *moving))
    effects = [f"{plural(len(random), 'dropout module')} at random"] if random else []
    effects += [f"{plural(len(moving), 'module')} with moving statistics"] if moving else []
    yield Match(
        f"frozen modules run in train mode: {' and '.join(effects)}",
        {"dropout_modules": len(random), "statistics_modules": len(moving)},
        names,
    )


RULE = Rule(
    "GT105",
    Level.NOTE,
    "a frozen model runs in train mode",
    "the outputs of a teacher or a feature extractor are random, and its statistics move, unless it is in eval mode",
    "call eval() on it, unless that is intended",
    check,
    needs=needs_frozen,
)
