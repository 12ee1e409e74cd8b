"""GT224: the functions of a `LambdaLR` return the learning rate, and it multiplies the learning rate by them."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match schedulers whose factors are the learning rate of their optimizer, and never more."""
    for each in state.script_calls.squared.values():
        name = optimizer_name(state, each.optimizer)
        yield Match(
            f"the function of LambdaLR returns the learning rate {each.first_rate:g}, and {name} trains at its square or less, "
            f"now {each.rate:g}",
            {"first_rate": each.first_rate, "rate": each.rate, "scheduler_steps": each.steps},
            is_exact=True,
            site=each.site,
            key=str(each.optimizer),
        )


RULE = Rule(
    "GT224",
    Level.WARNING,
    "a schedule multiplies the learning rate by itself",
    "LambdaLR multiplies the learning rate that the optimizer was made with by what its function returns",
    "return a factor, 1.0 for the learning rate of the optimizer; or make the optimizer with lr=1.0",
    check,
    explains=frozenset({"GT202"}),
)
