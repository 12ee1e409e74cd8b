"""GT109: what DistributedDataParallel waits for, by name, and what it does not know."""

from __future__ import annotations

import pytest

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ModelInfo, ModuleInfo, ParameterInfo
from gradtui.run.diagnostics.rules.gt109_unknown_to_ddp import RULE
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.job import Divergence, JobState
from gradtui.run.state.run_state import RunState

NAMES = ("a", "b", "c")
BYTES = 40
"""Of each of the three parameters."""
FOUND = ev.ModelsFound(
    0.0, 0,
    (ModelInfo("model", "DistributedDataParallel", 0, 1),),
    (ModuleInfo("", "model", "DistributedDataParallel", 0, -1, 0, 3, 3, 1),),
    tuple(ParameterInfo(name, (name,), (10,), "float32", 10, BYTES, 0) for name in NAMES),
)  # fmt: skip
ERROR = (
    "RuntimeError: Expected to have finished reduction\nParameter indices which did not receive grad for rank 0: {}\n"
)


def state_of(*trainable: str, buckets: int = 0, error: str | None = None) -> RunState:
    state = RunState()
    apply(state, FOUND)
    for step, flags in enumerate(trainable, 1):
        apply(state, ev.ParametersClassified(float(step), step, "T" * 3, flags))
        apply(state, ev.GradientFlowMeasured(float(step), step, 0, "e", "g", "1", (1,), (BYTES,), (buckets,)))
    if error is not None:
        apply(state, ev.RunEnded(9.0, 2, 1, error))
    return state


@pytest.mark.parametrize(
    ("trainable", "indices", "paths"),
    [
        ("111", "1 2", ("b", "c")),
        # A frozen parameter has no index.
        ("011", "1", ("c",)),
        ("011", "0 1", ("b", "c")),
    ],
)
def test_the_error_names_parameters(trainable: str, indices: str, paths: tuple[str, ...]) -> None:
    (match,) = RULE.check(state_of(trainable, error=ERROR.format(indices)))
    assert match.paths == paths
    assert match.evidence == {"tensors": len(paths), "elements": 10 * len(paths)}


def test_another_error_matches_nothing() -> None:
    assert list(RULE.check(state_of("111", error="ValueError: 4 5"))) == []


def test_parameters_that_were_unfrozen_later() -> None:
    (match,) = RULE.check(state_of("011", "111", buckets=2 * BYTES))
    assert (match.level, match.paths) == (Level.WARNING, ("a",))


@pytest.mark.parametrize(
    ("trainable", "buckets"),
    [
        pytest.param(("011", "111"), 3 * BYTES, id="they have a place in the buckets"),
        pytest.param(("011", "111"), 0, id="the buckets are not known"),
        pytest.param(("011", "011"), 2 * BYTES, id="they are still frozen"),
        pytest.param(("111", "011"), 3 * BYTES, id="they are frozen now"),
    ],
)
def test_what_the_wrapper_knows(trainable: tuple[str, ...], buckets: int) -> None:
    assert list(RULE.check(state_of(*trainable, buckets=buckets))) == []


@pytest.mark.parametrize(("names", "level"), [(("a", "c"), None), (("c",), Level.WARNING)])
def test_values_that_are_known_to_differ(names: tuple[str, ...], level: Level | None) -> None:
    state = state_of("011", "111", buckets=2 * BYTES)
    state.job = JobState()
    state.job.divergences["checksums"] = Divergence("checksums", 16, 32, (0, 1), (1,), names, ())
    (match,) = RULE.check(state)
    words = ", and the values differ between ranks 0 and 1 since a step from 17 to 32"
    assert match.message.endswith("is not averaged over the ranks" + (words if level is None else ""))
    assert match.level is level


def test_parameters_that_were_added_later() -> None:
    (match,) = RULE.check(state_of("111", buckets=2 * BYTES))
    assert (match.level, match.key) == (Level.WARNING, "added")
    assert match.evidence == {"averaged_bytes": 2 * BYTES, "trainable_bytes": 3 * BYTES}
    assert list(RULE.check(state_of("111", buckets=3 * BYTES))) == []
