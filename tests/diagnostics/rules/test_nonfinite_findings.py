"""What GT209 says of a value that is not finite: in which batch, from which cause, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers.rule_rows import matches
from rows_209_to_227 import not_finite

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.diagnostics import Match


def found_in(phase: Phase, **facts: Any) -> Match:
    """What GT209 says of a NaN in this phase of step 41."""
    (found,) = matches("GT209", not_finite(phase, **facts))
    return found


def test_eps_that_is_zero_in_dtype_of_weights() -> None:
    found = found_in(Phase.OPTIMIZER, parameter="b.weight", learning_rate=0.001, lost_eps=(1e-8, "float16"))
    assert "the optimizer step 41 (lr 0.001): eps 1e-08 is 0 in float16" in found.message
    assert found.remedy == "keep the weights in float32, or give the optimizer an eps that float16 has, such as 1e-4"


def test_the_batch_is_named() -> None:
    batch = ev.NamedBatch(3, 10)
    assert "in the batch of step 41 (batch 3 of 10 of the epoch)" in found_in(Phase.DATA, batches=(batch,)).message
    with_samples = replace(batch, samples=(4, 7), sample_count=2)
    assert "(batch 3 of 10 of the epoch: samples 4, 7)" in found_in(Phase.DATA, batches=(with_samples,)).message
    of_two = found_in(Phase.FORWARD, batches=(with_samples, replace(with_samples, epoch=2, data_set="Subset")))
    assert "samples 4, 7, with batch 3 of 10 of epoch 2: samples 4, 7 of the Subset)" in of_two.message
    assert of_two.evidence["samples"] == "4, 7"
    assert "forward of step 41 (batch 3 of the epoch)" in found_in(Phase.FORWARD, batches=(ev.NamedBatch(3),)).message
    many = replace(batch, samples=tuple(range(32)), sample_count=1_256)
    assert "samples 0, 1, 2, 3, 4, 5, 6, 7, … (1,256 samples))" in found_in(Phase.DATA, batches=(many,)).message


def test_the_remedy_is_that_of_the_cause() -> None:
    found = found_in(Phase.FORWARD, cause=ev.NonFiniteCause.LOG_OF_ZERO, dtype="float16", exact=False)
    assert found.remedy.startswith("use log_softmax or logsigmoid")
    assert found.remedy.endswith("a number such as 1e-8 that is added is 0 in float16")
    assert found.evidence["cause"] == "log of 0"


def test_each_cause_has_remedy_or_usual_one() -> None:
    without = {cause for cause in ev.NonFiniteCause if found_in(Phase.FORWARD, cause=cause).remedy is None}
    assert without == {ev.NonFiniteCause.INF_MINUS_INF, ev.NonFiniteCause.ZERO_TIMES_INF, ev.NonFiniteCause.TIMES_INF}


def test_an_unknown_cause_is_said_to_be_unknown() -> None:
    assert found_in(Phase.FORWARD).message.endswith("; what it was made of is not known")
    probably = found_in(Phase.BACKWARD, parameter="a", operation="SqrtBackward0")
    assert "probably from SqrtBackward0" in probably.message
    assert probably.message.endswith("; its values were not read")
    assert "not known" not in found_in(Phase.DATA).message


def test_known_step_is_not_to_be_searched_for() -> None:
    assert "--pause-at-nan" not in (found_in(Phase.OPTIMIZER, parameter="b.weight").remedy or "")
    assert "--pause-at-nan" not in (found_in(Phase.FORWARD, exact=False).remedy or "")
    assert "--pause-at-nan" not in (found_in(Phase.BACKWARD, exact=False).remedy or "")
    assert "--pause-at-nan" in (found_in(Phase.BACKWARD, exact=False, earliest=38).remedy or "")
    assert "--pause-at-nan" in (found_in(Phase.OPTIMIZER, parameter="b.weight", exact=False).remedy or "")
