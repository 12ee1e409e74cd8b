"""GT220: spikes, and of which batch they are."""

from __future__ import annotations

from dataclasses import replace

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

BATCH = ev.NamedBatch(3, 10, 1, samples=(4, 7), sample_count=2, data_set="TensorDataset")


def with_spikes(*spikes: ev.SpikeFound) -> RunState:
    state = run()
    for spike in spikes:
        apply(state, spike)
    return state


def spike(number: int, value: float, step: int = 13) -> ev.SpikeFound:
    return ev.SpikeFound(1.0, step, number, "loss", value, 0.5, 2.0, (BATCH,), micro_step=2)


def test_the_highest_spike_is_named() -> None:
    found = match("GT220", with_spikes(spike(1, 3.0, 5), spike(2, 48.0), spike(3, 2.5, 15)))
    assert found.message == (
        "loss spike: 48 at step 13, backward 2 of it (batch 3 of 10 of epoch 1: samples 4, 7); usual is 0.5; it is the "
        "highest of 3 spikes, and samples 4, 7 are in all of them"
    )
    assert (found.evidence["batch"], found.evidence["samples"], found.evidence["steps"]) == (3, "4, 7", "5, 13, 15")
    assert (found.level, found.first_step) == (Level.NOTE, 13)
    assert matches("GT220", run()) == []


def test_samples_that_all_spikes_share() -> None:
    other = replace(spike(2, 3.0, 25), batches=(replace(BATCH, epoch=2, samples=(7, 1)),))
    found = match("GT220", with_spikes(spike(1, 48.0), other))
    assert found.message.endswith("; it is the highest of 2 spikes, and sample 7 is in all of them")
    assert found.evidence["shared_samples"] == "7"
    unknown = replace(other, batches=(replace(BATCH, samples=(7, 1), sample_count=64),))
    assert "in all of them" not in match("GT220", with_spikes(spike(1, 48.0), unknown)).message


def test_a_loss_that_stays_high_is_a_warning() -> None:
    state = with_spikes(spike(1, 48.0))
    apply(state, ev.SpikeSettled(2.0, 21, 1, None))
    assert match("GT220", state).level is None
    assert match("GT220", state).message.endswith("; it stays high")
    state = with_spikes(spike(1, 48.0))
    apply(state, ev.SpikeSettled(2.0, 15, 1, 15))
    assert match("GT220", state).level is Level.NOTE
    assert match("GT220", state).message.endswith("; usual again at step 15")


def test_a_norm_and_what_clips_it() -> None:
    found = match("GT220", with_spikes(ev.SpikeFound(1.0, 13, 1, "norm", 340.0, 1.5, 4.0, clipped_at=1.0)))
    assert found.message == "gradient norm spike: 340 at step 13; usual is 1.5; clipped to 1"
    assert (found.key, found.evidence["batch"]) == ("gradient norm", None)


def test_gt210_leaves_a_spike_to_this_rule() -> None:
    state = run()
    for step, norm in ((11, 0.5), (12, 0.5), (13, 90.0), (14, 60.0)):
        apply(state, ev.GradientsMeasured(1.0, step, norm, None, None))
    assert matches("GT210", state)
    apply(state, spike(1, 48.0))
    assert matches("GT210", state) == []
