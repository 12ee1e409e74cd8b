"""GT402: an evaluation runs as training does: in train mode, or with dropout that does not depend on the mode."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match a module that trains, and was evaluated with dropout or statistics of the batch."""
    for each in state.calls.unfit_evaluations if state.calls is not None else ():
        layers = ", ".join(f"{count} {name}" for name, count in each.layers)
        evaluations, remedy = f"{plural(each.count, 'evaluation')} ({plural(each.calls, 'forward')})", None
        if each.in_train_mode:
            message = f"{each.module} was in train mode in {evaluations}: {layers} on"
        else:
            message = (
                f"{each.module} was in eval mode in {evaluations}, with dropout on: functional.dropout in {layers}"
            )
            remedy = "pass training=self.training to functional.dropout, or use nn.Dropout"
        yield Match(
            message,
            {"evaluations": each.count, "forwards": each.calls, "modules": sum(count for _, count in each.layers)},
            first_step=each.since_step,
            is_exact=True,
            remedy=remedy,
            key=f"{each.module} {each.in_train_mode}",
        )


RULE = Rule(
    "GT402",
    Level.WARNING,
    "an evaluation runs as training does",
    "dropout makes its result random and worse, and BatchNorm normalises by each batch and adds it to the running statistics",
    "call model.eval() before an evaluation, and model.train() after it",
    check,
    needs=lambda state: None if state.phases[Phase.EVAL].count else "no evaluation ran",
)
