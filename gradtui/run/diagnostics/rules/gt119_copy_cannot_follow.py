"""GT119: an averaged copy of the model cannot follow it: its buffers are left out, or its type is too coarse."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.evidence import AveragedCopyCompared
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed

_STEPS = 5
"""Steps between the first and the newest comparison."""
_MOST = 0.8
"""Share that counts as nearly all."""
_FEW = 0.5
"""Share of the elements that a 16-bit average may change: a small value has close neighbours, and one near the next power of
two moves at each update."""
_COARSE = ("bfloat16", "float16")


def check(state: RunState) -> Iterator[Match]:
    """Match copies whose weights follow those of a model that trains and whose buffers do not, or that rounding keeps still."""
    modules = state.tree.modules
    for each in state.evidence.averaged.values():
        if max(each.copy, each.source) >= len(modules) or each.step - each.since_step < _STEPS:
            continue
        copy, source = (modules[index].path or modules[index].name for index in (each.copy, each.source))
        if _leaves_buffers(each):
            yield Match(
                f"the weights of {copy} follow those of {source} and its buffers do not: {listed(list(each.buffers))} "
                f"{'is' if len(each.buffers) == 1 else 'are'} unchanged since step {each.since_step:,}",
                {"buffers": len(each.buffers), "since_step": each.since_step},
                (copy,),
                remedy="copy the buffers too: for b, c in zip(copy.buffers(), model.buffers()): b.copy_(c)",
                key=f"buffers {each.copy}",
            )
        if _is_rounded(each):
            yield Match(
                f"the average {copy} cannot follow {source}: {each.dtype} rounds most of its updates away, and "
                f"{1 - each.elements_changed[0]:.0%} of its elements are unchanged since step {each.since_step:,}",
                {"changed": each.elements_changed[0], "changed_of_source": each.elements_changed[1]},
                (copy,),
                remedy="keep the average in float32",
                key=f"type {each.copy}",
            )


def _leaves_buffers(each: AveragedCopyCompared) -> bool:
    follows = each.tensors_changed[0] >= _MOST and each.tensors_changed[1] >= _MOST
    return bool(each.buffers and each.is_called and follows and each.buffers_changed[0] == 0 < each.buffers_changed[1])


def _is_rounded(each: AveragedCopyCompared) -> bool:
    """Return whether few elements have changed, but some: a copy that nobody writes to is no average."""
    copied, source = each.elements_changed
    return each.dtype in _COARSE and 0 < copied < _FEW and source > _MOST


RULE = Rule(
    "GT119",
    Level.WARNING,
    "an averaged copy of the model cannot follow it",
    "without the buffers it normalises by old statistics, and in 16 bits the small updates of an average are rounded away",
    "average or copy the buffers too, and keep the average in float32",
    check,
    needs=lambda state: needs_sample(state) or (None if state.evidence.averaged else "no frozen copy of a model ran"),
)
