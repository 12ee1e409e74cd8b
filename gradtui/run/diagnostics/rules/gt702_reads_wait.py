"""GT702: the step reads values of tensors one by one, or waits for the device with each read."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.small_operations import lost_to_operations, lost_to_waits, needs_counts
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.step_times import reads_words


def check(state: RunState) -> Iterator[Match]:
    """Match a loop that waits for reads from a device, or most of which reads one value after the other."""
    for waits in lost_to_waits(state):
        yield Match(
            f"{waits.words} waits for the device at {reads_words(waits.small)}",
            waits.evidence,
            is_exact=waits.is_exact,
            explains=waits.explains,
            key="waits",
        )
        return
    for found in lost_to_operations(state):
        if found.small.are_reads:
            yield Match(
                f"{found.words} reads values one by one: {reads_words(found.small)}",
                found.evidence,
                is_exact=found.is_exact,
                remedy="read a whole tensor at once (.tolist()), or compute with tensors and read the result",
                explains=found.explains,
                key="values",
            )


RULE = Rule(
    "GT702",
    Level.WARNING,
    "reads of values hold up each step",
    "a read such as .item() ends only when all earlier operations have run, and the next ones can start only then",
    "keep losses and metrics on the device, and read them every hundredth step; print less often",
    check,
    explains=frozenset({"GT703"}),
    needs=needs_counts,
)
