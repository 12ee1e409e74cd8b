"""GT402: an evaluation runs in train mode."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match a module that trains, and was evaluated with dropout or statistics of the batch."""
    for each in state.calls.train_mode if state.calls is not None else ():
        layers = ", ".join(f"{count} {name}" for name, count in each.layers)
        yield Match(
            f"{each.module} was in train mode in {plural(each.count, 'evaluation')} ({each.calls:,} forwards without "
            f"gradients): {layers} on",
            {"evaluations": each.count, "forwards": each.calls, "modules": sum(count for _, count in each.layers)},
            first_step=each.since_step,
            is_exact=True,
            key=each.module,
        )


RULE = Rule(
    "GT402",
    Level.WARNING,
    "an evaluation runs in train mode",
    "dropout makes its result random and worse, and BatchNorm normalises by each batch and adds it to the running statistics",
    "call model.eval() before an evaluation, and model.train() after it",
    check,
    needs=lambda state: None if state.phases[Phase.EVAL].count else "no evaluation ran",
)
