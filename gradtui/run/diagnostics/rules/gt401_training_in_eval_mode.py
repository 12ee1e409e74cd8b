"""GT401: training continues in eval mode after an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import windows_by_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_CALLS = 3
_STEPS = 3
"""Different steps with such calls, and none in train mode in between. An attack on the inputs of an evaluation has one."""
_DEPENDENT = ("Dropout", "BatchNorm", "InstanceNorm", "RReLU")
"""Modules whose type has one of these in its name work differently in eval mode."""


def check(state: RunState) -> Iterator[Match]:
    """Match a module that trained in train mode before, and has modules that depend on the mode."""
    affected: dict[str, int] = {}
    for module in state.tree.modules:
        name = next((name for name in _DEPENDENT if name in module.type_name), None)
        if name is not None:
            affected[module.type_name] = affected.get(module.type_name, 0) + 1
    if not affected:
        return
    starts = [each.first(lambda _: True) for each in windows_by_optimizer(state)]
    for each in state.calls.eval_mode if state.calls is not None else ():
        if not each.trained_before or each.calls < _CALLS:
            continue
        if each.last_step - each.since_step + 1 < _STEPS:
            continue
        # A script that begins to fine-tune in eval mode makes another optimizer for that.
        is_new_phase = any(begun > 1 and abs(each.since_step - begun) <= _STEPS for begun in starts)
        what = ", ".join(f"{count} {name}" for name, count in affected.items())
        yield Match(
            f"{each.module} trains in eval mode since step {each.since_step:,}: {what} off",
            {"since_step": each.since_step, "forwards": each.calls, "modules": sum(affected.values())},
            first_step=each.since_step,
            is_exact=True,
            level=Level.NOTE if is_new_phase else None,
            call="backward",
            key=each.module,
        )


RULE = Rule(
    "GT401",
    Level.ERROR,
    "training runs in eval mode after an evaluation",
    "eval() stays in force until train() is called: dropout stays off and BatchNorm normalises with frozen statistics",
    "call model.train() after each evaluation",
    check,
    needs=lambda state: None if state.phases[Phase.EVAL].count else "no evaluation ran",
)
