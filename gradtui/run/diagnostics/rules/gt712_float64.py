"""GT712: a model computes in float64."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.diagnostics.parameters import elements, in_state, paths
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

_SHARE = 0.5
_ELEMENTS = 1_000
"""A smaller model costs nothing."""


def check(state: RunState) -> Iterator[Match]:
    """Match models whose trained parameters are of float64 for the most part."""
    tree = state.tree
    trained = in_state(tree, ParameterState.TRAINED)
    double = [index for index in trained if tree.parameters[index].dtype.removeprefix("torch.") == "float64"]
    count, of = elements(tree, double), elements(tree, trained)
    if count < _ELEMENTS or count < _SHARE * of:
        return
    yield Match(
        f"{count:,} of {of:,} elements that train are float64: they, their gradients and activations take twice the memory of "
        "float32",
        {"elements": count, "trained_elements": of, "tensors": len(double)},
        paths(tree, double),
        is_exact=True,
    )


RULE = Rule(
    "GT712",
    Level.NOTE,
    "a model computes in float64",
    "float64 takes twice the memory and at least twice the time of float32; GPUs for games and inference have few units for it",
    "call model.float(), and give it float32: torch.from_numpy keeps NumPy's float64",
    check,
    needs=needs_sample,
)
