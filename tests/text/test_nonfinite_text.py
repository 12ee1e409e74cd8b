"""Where NaN or Inf appeared first, in words."""

from __future__ import annotations

from typing import Any

import pytest

from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import NonFiniteCause, NonFiniteFound, NonFiniteOutcome
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.bad_steps import nonfinite_text


def words(phase: Phase | None, value: str = "NaN", number: int = 1, last: int | None = 411, **known: Any) -> str:
    return nonfinite_text(NonFiniteFound(1.0, 412, number, value, phase, last, **known), with_hold=True)


SINCE = " (last finite step 411)"
FORWARD: list[tuple[dict[str, Any], str]] = [
    ({"module": "ln", "until": "ln", "batch_is_finite": True}, "in ln (its output); the batch was finite"),
    ({"module": "ln", "until": "ln"}, "in ln (its output)"),
    ({"module": "ln", "until": "ln", "exact": False}, "in ln or after it"),
    ({"module": "", "until": ""}, "in the model (its output)"),
    ({"module": "ln", "until": "ln", "is_input": True}, "in the input of ln"),
    ({"module": "ln", "until": "ln", "is_input": True, "exact": False}, "in the input of ln or of a module after it"),
    ({"module": "a.b", "until": "a"}, "in a, at or after a.b"),
    ({"module": "a", "until": ""}, "in the model, at or after a"),
    ({"module": "a", "until": "c"}, "somewhere from a to c"),
    ({"module": "a", "until": None}, "at or after a"),
    ({}, "in the loss, outside of any module"),
    ({"exact": False}, "in which module is not known"),
]


@pytest.mark.parametrize(("known", "said"), FORWARD)
def test_a_forward(known: dict[str, Any], said: str) -> None:
    assert words(Phase.FORWARD, **known) == f"first NaN: forward of step 412, {said}{SINCE}"


def test_a_backward() -> None:
    said = words(Phase.BACKWARD, parameter="blocks.3.attn.qkv.weight")
    assert said == f"first NaN: backward of step 412: loss finite, gradient of blocks.3.attn.qkv.weight NaN{SINCE}"
    assert words(Phase.BACKWARD, "Inf", parameter="head.bias", others=3, exact=False) == (
        f"first Inf: backward of step 412: gradient of head.bias Inf, and of 3 others{SINCE}"
    )
    assert "which was first is not known, since clipping spreads it to all" in words(Phase.BACKWARD, exact=False)


def test_update_batch_and_weights_from_start() -> None:
    said = words(Phase.OPTIMIZER, "Inf", last=412, parameter="head.weight", others=1, learning_rate=1e30)
    assert said == "first Inf: weights of head.weight and 1 other in the optimizer step 412 (lr 1e+30)"
    assert words(Phase.OPTIMIZER, parameter="head.weight", exact=False) == (
        f"first NaN: weights of head.weight in or before the optimizer step 412{SINCE}"
    )
    assert words(Phase.DATA) == f"first NaN: in the batch of step 412{SINCE}"
    assert words(Phase.LOAD, last=None, parameter="a") == "first NaN: weights of a before the first step"


def test_what_was_seen_late_has_bounds() -> None:
    assert words(None, last=300, parameter="a", exact=False) == (
        "first NaN: weights of a, somewhere in steps 301 to 411, which were not all measured (last finite step 300)"
    )
    assert words(None, last=300, exact=False) == (
        "first NaN: the loss, somewhere in steps 301 to 412, which were not all measured (last finite step 300)"
    )
    assert words(None, exact=False) == f"first NaN: the loss in step 412: by its forward, or an update before it{SINCE}"


def test_what_it_was_made_of() -> None:
    known: dict[str, Any] = {"module": "ln", "until": "ln", "batch_is_finite": True}
    assert words(Phase.FORWARD, cause=NonFiniteCause.LOG_OF_ZERO, dtype="float32", **known) == (
        f"first NaN: forward of step 412, in ln (its output): log of 0; the batch was finite{SINCE}"
    )
    assert "its output): 0/0 in float16" in words(
        Phase.FORWARD, cause=NonFiniteCause.ZERO_BY_ZERO, dtype="float16", **known
    )
    said = words(Phase.BACKWARD, parameter="a", operation="SqrtBackward0", cause=NonFiniteCause.SQRT_SLOPE)
    assert said.endswith(f"gradient of a NaN: sqrt at 0, where its derivative is infinite{SINCE}")
    said = words(Phase.OPTIMIZER, "Inf", last=412, parameter="a", cause=NonFiniteCause.OVERFLOW, dtype="float32")
    assert said == "first Inf: weights of a in the optimizer step 412: overflow in float32"
    said = words(Phase.OPTIMIZER, last=412, parameter="a", lost_eps=(0.0, "float32"))
    assert said.endswith("step 412: eps is 0, and so is what it is added to")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (NonFiniteOutcome(412, "", True), "; all weights were finite after step 412"),
        (NonFiniteOutcome(412, "scaler", True), "; the GradScaler skipped the step, and all weights stayed finite"),
        (NonFiniteOutcome(412, "script", True), "; the script left these gradients out, and all weights stayed finite"),
        (
            NonFiniteOutcome(412, "", False, "head.weight", 2),
            "; the optimizer step 412 wrote it to the weights of head.weight and 2 others",
        ),
    ],
)
def test_what_came_of_the_step(outcome: NonFiniteOutcome, said: str) -> None:
    assert words(Phase.DATA, outcome=outcome) == f"first NaN: in the batch of step 412{SINCE}{said}"


def test_the_batches_that_a_gradient_may_come_from() -> None:
    assert "backward of step 412 (one of batches 5 to 8 of 20 of the epoch): " in words(
        Phase.BACKWARD, parameter="a", batches=(NamedBatch(8, 20, before=3),)
    )
    assert "(batch 8 of 20 of epoch 2: samples 5, 6)" in words(
        Phase.DATA, batches=(NamedBatch(8, 20, 2, samples=(5, 6)),)
    )


def test_a_later_time_and_a_pause_are_told() -> None:
    assert words(Phase.DATA, number=2, holds=True) == (
        f"again NaN: in the batch of step 412{SINCE}; training pauses, as requested"
    )
