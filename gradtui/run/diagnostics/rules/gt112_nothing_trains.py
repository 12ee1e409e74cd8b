"""GT112: the optimizer steps, and no parameter can train."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import has_stepped, needs_optimizer
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural

_NO_GRAPH = "does not require grad and does not have a grad_fn"
"""Part of the message of the error that autograd raises if backward begins at a tensor without a graph."""
_STEPS = 3
_WITHOUT_GRADIENT = frozenset("-" + ParameterState.UNREACHED.value)


def check(state: RunState) -> Iterator[Match]:
    """Match a run whose parameters are all frozen, or all without a gradient, while an optimizer steps or backward fails."""
    if state.ended is not None and _NO_GRAPH in (state.ended.error or ""):
        yield Match(
            f"backward failed after {plural(state.step, 'step')}: the loss depends on no trainable parameter",
            {"steps": state.step, "tensors": len(state.tree.parameters)},
            is_exact=True,
            remedy="unfreeze what is to train, and compute the loss from it, outside of no_grad and without detach()",
            call="backward",
        )
        return
    tree, steps = state.tree, max(sum(state.optimizer_steps), state.tree.measured)
    free = sum(optimizer.unknown_parameters for optimizer in state.optimizers)
    if not has_stepped(state, _STEPS) or not tree.parameters or free or "-" in tree.trainable:
        return
    owned = sum(len(optimizer.parameters) for optimizer in state.optimizers if not optimizer.freed)
    if "1" not in tree.trainable:
        yield Match(
            f"no parameter is trainable: {steps:,} optimizer steps moved none of {plural(len(tree.parameters), 'tensor')}",
            {"steps": steps, "tensors": len(tree.parameters), "tensors_in_optimizers": owned},
        )
    elif all(letter in _WITHOUT_GRADIENT for letter, flag in zip(tree.states, tree.trainable) if flag == "1"):
        trainable = tree.trainable.count("1")
        if ParameterState.UNREACHED.value in tree.states:
            has_backward = state.micro_steps > 0
            cause = "no trainable parameter gets a gradient" if has_backward else "backward() was never called"
            yield Match(
                f"{cause}: {steps:,} optimizer steps moved none of {plural(trainable, 'trainable tensor')}",
                {"steps": steps, "trainable_tensors": trainable, "tensors_in_optimizers": owned},
                is_exact=not has_backward,
                remedy=None if has_backward else "call loss.backward() before each step, with its parentheses",
            )


RULE = Rule(
    "GT112",
    Level.ERROR,
    "nothing trains",
    "an optimizer moves only parameters that require a gradient and get one",
    "unfreeze what is to train before the forward, and check that the loss depends on it",
    check,
    explains=frozenset({"GT108"}),
    needs=needs_optimizer,
)
