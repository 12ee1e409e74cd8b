"""GT216: state was loaded into an optimizer for other parameters than those it is of."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match loaded states that are on other parameters, or that have another shape."""
    for each in state.script_calls.misplaced.values():
        if not (each.moved or each.unfit):
            continue
        name = optimizer_name(state, each.optimizer)
        if each.moved:
            source, target = each.examples[0]
            what = (
                f"load_state_dict() of {name} put the state of {each.moved:,} of {plural(each.tensors, 'tensor')} onto others: "
                f"{target} has that of {source}"
            )
        else:
            what = f"load_state_dict() of {name} gave {plural(each.unfit, 'tensor')} state of another shape"
        yield Match(
            what,
            {"tensors": each.tensors, "moved": each.moved, "known": each.known, "unfit": each.unfit},
            tuple(target for _, target in each.examples),
            0,
            is_exact=True,
            site=each.site,
            key=str(each.optimizer),
        )


RULE = Rule(
    "GT216",
    Level.ERROR,
    "an optimizer has the state of other parameters",
    "Optimizer.load_state_dict() matches parameters by their position, and checks nothing but their number",
    "give the optimizer its parameters in the order in which they were saved",
    check,
)
