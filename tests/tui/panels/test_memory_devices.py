"""The line of a CUDA device in the memory panel: both sides of NVML's figure, whole words, sums; and several devices."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
from helpers.fakes import GIB, MIB, coop_run, device_sample
from helpers.lines import text
from helpers.states import state_after
from helpers.summaries import report_of
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.driver import NvmlTrouble, NvmlTroubleKind
from gradtui.run.state.memory.devices import cuda_devices, sum_of
from gradtui.run.state.run_state import RunState
from gradtui.run.text import device_forms, end_rows
from gradtui.tui.explanations.memory_device import device_lines, other_device_lines
from gradtui.tui.panels.memory_devices import device_rows
from gradtui.tui.panels.memory_step import Drawing, scale_of, step_lines
from gradtui.tui.panels.memory_table import phase_table
from gradtui.tui.rendering.lines import line_width

SMALL = replace(
    device_sample(process=1372 * MIB),
    allocated=611 * MIB, reserved=872 * MIB, requested=610 * MIB, device_used=1872 * MIB, source="NVIDIA H100",
)  # fmt: skip


def second_device(sample: ev.DeviceSampled, index: int = 1, *, process: int | None = 900 * MIB) -> ev.DeviceFigures:
    known = {each.name: getattr(sample, each.name) for each in fields(ev.DeviceFigures)}
    return ev.DeviceFigures(
        **known
        | {"index": index, "device_process": process, "allocated": 300 * MIB, "reserved": 400 * MIB}
        | {"device_used": 500 * MIB + (process or 0)}
    )


TWO = replace(SMALL, index=0, others=(second_device(SMALL),))


def state_with(sample: ev.DeviceSampled) -> RunState:
    return state_after(*coop_run(10), sample)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (28, "NVML 1,372 MiB of 80.0 GiB =\n611 alloc+261 cached+500 ctx"),
        (50, "NVML 1,372 MiB = 611 alloc + 261 cached + 500 ctx"),
        (68, "NVML 1,372 MiB = 611 alloc + 261 cached + 500 ctx of 80.0 GiB"),
        (80, "process (NVML) 1,372 MiB = 611 allocated + 261 cached + 500 context, of 80.0 GiB"),
        (
            120,
            "process (NVML) 1,372 MiB = 611 allocated + 261 cached + 500 context · device 1.83 GiB of 80.0 GiB · busy 83%",
        ),
    ],
)
def test_both_sides_are_named_at_every_width(width: int, shown: str) -> None:
    assert text(device_rows(state_with(SMALL), width)) == shown


def test_the_line_ends_with_what_processes_can_have() -> None:
    kept = replace(SMALL, device_total=81 * GIB, driver_reserved=GIB)
    for width in (28, 80, 120):
        assert text(device_rows(state_with(kept), width)) == text(device_rows(state_with(SMALL), width))


def test_unreported_by_driver_is_dash() -> None:
    alone = replace(SMALL, device_used=None, device_total=None, device_process=None)
    expected = "process (NVML) –, torch reserved 872 MiB = 611 allocated + 261 cached · busy 83%"
    assert text(device_rows(state_with(alone), 90)) == expected
    hidden = replace(SMALL, device_process=None)
    assert text(device_rows(state_with(hidden), 90)) == (
        "device (NVML) 1,872 MiB = 611 allocated + 261 cached + 1,000 outside torch, of 80.0 GiB"
    )
    assert device_rows(state_with(replace(SMALL, reserved=None)), 90) == []


sizes = st.none() | st.integers(0, 1 << 42)


@given(st.tuples(sizes, sizes, sizes, sizes, sizes), st.integers(12, 130), st.integers(1, 4), st.integers(1, 4))
def test_numbers_add_up_and_lines_fit(known: tuple[int | None, ...], width: int, most: int, devices: int) -> None:
    used, process, allocated, reserved, total = known
    sample = ev.DeviceSampled(1.0, 1, "X", 1, 2, used, total, process, allocated, reserved, None)
    others = tuple(second_device(sample, 1 + index) for index in range(devices - 1))
    state = state_with(replace(sample, index=0, others=others))
    rows = device_rows(state, width, most)
    assert len(rows) <= most
    assert all(line_width(row) <= width for row in rows)
    every = cuda_devices(state.device)
    for device in (*every, sum_of(every)) if every else ():
        for form in device_forms(device):
            _, equals, parts = " ".join(form).partition(" = ")
            parts = re.split(" of |,? of | · ", parts)[0]
            whole = re.search(r"([\d,.]+) [MG]iB", " ".join(form).partition(" of ")[0])
            if equals and "–" not in parts and whole is not None:
                terms = [float(re.findall(r"[\d,.]+\d|\d", term)[0].replace(",", "")) for term in parts.split("+")]
                assert sum(terms) == pytest.approx(float(whole[1].replace(",", "")), abs=0.01)


@pytest.mark.parametrize("size", [(28, 5), (50, 9), (52, 9), (68, 13), (110, 20)])
def test_view_by_phase_has_it_at_every_size(size: tuple[int, int]) -> None:
    table = text(phase_table(state_with(SMALL), *size).lines)
    assert "NVML" in table
    assert "261 cached" in table
    assert "forward" in table


@pytest.mark.parametrize("size", [(28, 5), (50, 10), (68, 13), (110, 20)])
def test_view_within_step_has_it_at_every_size(size: tuple[int, int]) -> None:
    state = state_with(SMALL)
    shown = text(step_lines(state, *size, scale_of(state, Drawing()), {}))
    assert "NVML" in shown
    assert "1,372 MiB" in shown
    assert ("261 cached" if size[0] > 28 else "611 alloc") in shown


def test_what_nvml_does_not_report_comes_first() -> None:
    state = state_with(replace(SMALL, device_process=None, trouble=NvmlTrouble(NvmlTroubleKind.PROCESS_HIDDEN)))
    narrow, wide = (text(phase_table(state, width, height).lines) for width, height in ((28, 5), (70, 20)))
    assert "NVML: process hidden" in narrow
    assert "alloc" not in narrow
    assert "as in a container" in " ".join(wide.split())
    assert "1,000 outside" in wide


def test_each_of_several_devices_has_a_line() -> None:
    state = state_with(TWO)
    assert text(device_rows(state, 70)).splitlines() == [
        "cuda:0* NVML 1,372 MiB = 611 alloc + 261 cached + 500 ctx of 80.0 GiB",
        "cuda:1 NVML 900 MiB = 300 alloc + 100 cached + 500 ctx of 80.0 GiB",
    ]
    assert text(device_rows(state, 52)).splitlines() == [
        "cuda:0* 1,372 MiB = 611 alloc + 261 cached + 500 ctx",
        "cuda:1 900 MiB = 300 alloc + 100 cached + 500 ctx",
    ]
    assert text(device_rows(state, 28)).splitlines() == [
        "cuda:0* 1,372 MiB, 611 alloc",
        "cuda:1 900 MiB, 300 alloc",
    ]
    one_row = [text(device_rows(state, width, 1)) for width in (70, 48, 36, 28)]
    assert one_row == [
        "2 devices (NVML) 2.22 GiB, fullest cuda:0 1.34 GiB of 80.0 GiB",
        "2 devices 2.22 GiB, fullest cuda:0 1.34 GiB",
        "fullest cuda:0 1.34 GiB of 80.0 GiB",
        "fullest cuda:0 1.34 GiB",
    ]


def test_device_nearest_limit_is_marked() -> None:
    """It is not the one with most bytes of this process, but that of which the largest share is in use."""
    small_device = replace(second_device(SMALL), device_total=2 * GIB)
    state = state_with(replace(SMALL, index=0, others=(small_device,)))
    first, second = text(device_rows(state, 160)).splitlines()
    assert first.startswith("cuda:0 process")
    assert second.startswith("cuda:1 fullest process")


def test_devices_are_in_dialog_and_endings() -> None:
    state = state_with(TWO)
    shown = text(device_lines(state, 60, colour=True) + other_device_lines(state, 60, colour=True))
    assert [line[:8] for line in shown.splitlines() if line.startswith("cuda")] == ["cuda:0: ", "cuda:1: "]
    assert "1.34 GiB" in shown
    assert " 900 MiB" in shown
    assert [row.text.split(" = ")[0] for row in end_rows(state) if row.label == "device"] == [
        "cuda:0 process (NVML) 1,372 MiB",
        "cuda:1 process (NVML) 900 MiB",
    ]
    told = [line for line in report_of(state) if line.startswith("device memory of this process on cuda:")]
    assert len(told) == 2
    assert other_device_lines(state_with(SMALL), 60, colour=True) == []


def test_of_many_devices_sum_and_fullest_are_shown() -> None:
    others = tuple(second_device(SMALL, index, process=(900 + index) * MIB) for index in range(1, 8))
    state = state_with(replace(SMALL, index=0, others=others))
    first, *fullest = text(device_rows(state, 120, 3)).splitlines()
    assert first.startswith("8 devices process (NVML)")
    assert f"of {8 * 80 * GIB // GIB} GiB" in first
    assert [line.split()[0] for line in fullest] == ["cuda:0*", "cuda:7"]
