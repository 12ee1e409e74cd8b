"""What a run processes in a second, against arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.timed_steps import times

from gradtui.protocol.events import OperationsCounted, OperationsRecorded, SamplesMeasured
from gradtui.run.state.parts.peak_flops import peak_flops
from gradtui.run.state.parts.throughput import throughput
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.throughput_of_run import mean_throughput, slowdown
from gradtui.run.text.throughput import a_second, flops_text, mean_words, throughput_clauses


def samples(*, counted: bool = True, one_size: bool = True, tokens: float | None = None) -> SamplesMeasured:
    """100 steps of 64 samples, the newest 20 of which had 32."""
    return SamplesMeasured(1.0, 100, 100 * 64, 100, 20.0 * 32, 20, counted, one_size, tokens)


def operations(*flops: tuple[str, int], has_more: bool = False) -> OperationsRecorded:
    return OperationsRecorded(1.0, 3, (), (), (), flops=flops, has_more_flops=has_more)


def test_samples_and_tokens() -> None:
    lately = throughput(5.0, samples(tokens=128.0))
    assert (lately.samples, lately.tokens) == (5 * 32, 5 * 32 * 128)
    on_average = throughput(5.0, samples(), lately=False)
    assert (on_average.samples, on_average.tokens) == (5 * 64, None)


@pytest.mark.parametrize(
    ("counted", "one_size", "expected"),
    [(True, False, "exact"), (False, True, "exact"), (False, False, "about")],
)
def test_uncounted_or_differing_batches_are_estimates(counted: bool, one_size: bool, expected: str) -> None:
    made = throughput(5.0, samples(counted=counted, one_size=one_size))
    assert made.samples_bound == expected


def test_the_share_of_the_peak() -> None:
    # 156 TFLOP of single precision that may be rounded take a second at the peak, and as many of bfloat16 half a second.
    work = operations(("bfloat16", 156 * 10**12), ("tf32", 156 * 10**12))
    made = throughput(0.5, samples(), work, "NVIDIA A100-SXM4-80GB")
    assert made.flops == pytest.approx(156e12)
    assert made.share_of_peak == pytest.approx(0.75)
    assert list(throughput_clauses(made)) == ["16.0 samples/s", "156 TFLOP/s (75 % of the device's peak)"]


@pytest.mark.parametrize(
    ("recorded", "calls", "expected", "bound"),
    [(10, 10 * 4, 1e9, "exact"), (10, 102 * 4, 10.2e9, "about"), (2, 1 * 4, 0.5e9, "about"), (0, 40, 1e9, "exact")],
)
def test_steps_with_more_calls_compute_more(recorded: int, calls: int, expected: float, bound: str) -> None:
    work = replace(operations(("float32", 10**9)), calls_of_models=recorded)
    made = throughput(1.0, None, work, counted=OperationsCounted(1.0, 9, 4, 400, (), (), calls))
    assert (made.flops, made.flops_bound) == (pytest.approx(expected), bound)
    assert made.flops_a_step == {"float32": pytest.approx(expected)}


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "bfloat16"),
        ("cpu", "float32"),
        ("Tesla T4", "bfloat16"),
        ("NVIDIA L4", "int8"),
    ],
)
def test_an_unknown_peak(device: str, dtype: str) -> None:
    assert peak_flops(device, dtype) is None
    made = throughput(1.0, None, operations((dtype, 10**12)), device)
    assert made.share_of_peak is None


def test_a_lower_bound() -> None:
    made = throughput(2.0, None, operations(("float32", 10**9), has_more=True))
    assert made is not None
    assert list(throughput_clauses(made)) == ["≥2.00 GFLOP/s"]


@pytest.mark.parametrize(
    ("device", "half"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA L40", 181),
        ("NVIDIA L40S", 362),
        ("Tesla T4", 65),
    ],
)
def test_each_device_has_its_own_peak(device: str, half: float) -> None:
    assert peak_flops(device, "float16") == half * 1e12


def test_the_mean_of_a_run_and_its_trend() -> None:
    state = RunState()
    assert mean_throughput(state) is None
    # 10 ms each: forward and backward of the script, and 2 ms of gradtui besides.
    state.step_times = times(forward=4, backward=6, gradtui=2)
    state.throughput.samples = samples()
    made = mean_throughput(state)
    assert made.steps == pytest.approx(100)
    assert made.samples == pytest.approx(6400)
    assert slowdown(state) == pytest.approx(0.25)
    assert mean_words(state) == "100 steps/s, 6,400 samples/s, 12.5 ms a step lately, and 10.0 ms at first"


@pytest.mark.parametrize(("rate", "expected"), [(0.0123, "0.012"), (0.35, "0.35"), (24.1, "24.1"), (12_640.0, "12.6k")])
def test_numbers(rate: float, expected: str) -> None:
    assert a_second(rate) == expected


@pytest.mark.parametrize(
    ("rate", "expected"), [(999.0, "999 FLOP/s"), (1.24e12, "1.24 TFLOP/s"), (3e20, "300 EFLOP/s")]
)
def test_units(rate: float, expected: str) -> None:
    assert flops_text(rate) == expected
