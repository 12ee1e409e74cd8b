"""What the driver says of a CUDA device: the bar, its legend, where they are shown, and the sentences."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.fakes import MIB, device_sample
from helpers.lines import text
from helpers.states import coop_after
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.driver import NvmlTrouble, NvmlTroubleKind
from gradtui.run.reducer import apply
from gradtui.run.state.memory.reconciliation import Reconciliation, reconcile
from gradtui.run.state.run_state import RunState
from gradtui.run.text.driver import nvml_trouble_text, nvml_trouble_words
from gradtui.tui.explanations.memory_device import MEANINGS, ROLES, device_facts, device_lines, heading
from gradtui.tui.panels.memory_bars import MemoryOptions
from gradtui.tui.panels.memory_devices import nvml_lines
from gradtui.tui.panels.memory_step import Drawing, scale_of, step_lines
from gradtui.tui.panels.memory_table import phase_table
from gradtui.tui.rendering.lines import Line, detail_lines, line_width

SAMPLE = device_sample()
HIDDEN = device_sample(process=None)
ALONE = dataclasses.replace(HIDDEN, device_used=None, device_total=None, source="host")
NO_REQUESTS = dataclasses.replace(SAMPLE, requested=None)


def words(lines: list[Line]) -> str:
    return " ".join(text(lines).split())


def bar_cells(line: Line) -> dict[str, int]:
    return {role: len(part) for part, role in line if role in ROLES.values()}


def test_panel_without_cuda_is_as_ever() -> None:
    state = coop_after()
    assert device_lines(state, 60, colour=True) == []
    assert "driver" not in text(phase_table(state, 70, 60).lines)


@pytest.mark.parametrize("width", [36, 61, 90])
def test_parts_have_number_and_bar_share(width: int) -> None:
    lines = device_lines(coop_after(SAMPLE), width, colour=True)
    shown = words(lines[2:])
    for name, size in (
        ("requested", "9.00 GiB"),
        ("rounding", "100 MiB"),
        ("cached", "3.20 GiB"),
        ("context", "1.71 GiB"),
    ):
        assert name in shown
        assert size in shown
    assert "14.0 GiB" in text([lines[1]])
    assert all(line_width(line) <= width for line in lines)
    cells = bar_cells(lines[1])
    bar = width - 9
    for role, size in (("device-requested", 9.0), ("device-cached", 3.195), ("device-context", 1.707)):
        assert abs(cells[role] - bar * size / 14) <= 1


@pytest.mark.parametrize(
    ("sample", "said", "total"),
    [(SAMPLE, "this process", "14.0 GiB"), (HIDDEN, "all processes", "15.0 GiB"), (ALONE, "driver", "–")],
)
def test_whose_memory_it_is_stands_above_it(sample: ev.DeviceSampled, said: str, total: str) -> None:
    lines = device_lines(coop_after(sample), 61, colour=True)
    assert said in text([lines[0]])
    assert text([lines[1]]).endswith(total)


def test_what_is_not_known_is_a_dash() -> None:
    shown = words(device_lines(coop_after(ALONE), 61, colour=True)[2:])
    assert "context, libraries –" in shown
    assert "0 B" not in shown


def test_without_colour_parts_differ() -> None:
    for sample in (SAMPLE, HIDDEN, NO_REQUESTS):
        cells = [
            part[0] for part, role in device_lines(coop_after(sample), 90, colour=False)[1] if role in ROLES.values()
        ]
        assert len(set(cells)) == len(cells) > 1


@pytest.mark.parametrize(
    "size", [(36, 20), (38, 21), (43, 11), (61, 13), (61, 15), (70, 21), (70, 40), (20, 6), (49, 60)]
)
def test_it_takes_only_rows_that_are_left(size: tuple[int, int]) -> None:
    _, height = size
    without, view = phase_table(coop_after(), *size), phase_table(coop_after(SAMPLE), *size)
    assert len(view.lines) <= height
    assert len(view.lines) == len(view.phases)
    # The rows of the first phases and all numbers are those of a run without a device, whose line has its place after them.
    rows = [line for line in text(without.lines).splitlines() if line.strip() and not line.startswith(("host", "▲"))]
    first = [line for line in rows if not line.startswith((" zero_grad", " load"))]
    assert [line for line in text(view.lines).splitlines() if line in first] == first


def test_a_panel_that_is_high_enough_shows_it() -> None:
    assert "nvidia-smi" in text(phase_table(coop_after(SAMPLE), 70, 21).lines)
    assert "nvidia-smi" in text(phase_table(coop_after(SAMPLE), 38, 30).lines)
    assert "nvidia-smi" not in text(phase_table(coop_after(SAMPLE), 38, 12).lines)


figures = st.none() | st.integers(0, 1 << 50)


@given(st.tuples(figures, figures, figures, figures, figures), st.integers(8, 120), st.booleans())
def test_any_figures_can_be_shown(known: tuple[int | None, ...], width: int, colour: bool) -> None:
    used, process, allocated, reserved, requested = known
    sample = ev.DeviceSampled(1.0, 1, "X", 1, 2, used, None, process, allocated, reserved, None, requested)
    state = RunState()
    apply(state, sample)
    lines = device_lines(state, width, colour=colour)
    assert bool(lines) == (reserved is not None)
    assert detail_lines(device_facts(state), width)
    assert phase_table(state, max(20, width), 20, MemoryOptions(colour=colour)).lines


def said(sample: ev.DeviceSampled) -> str:
    return words(detail_lines(device_facts(coop_after(sample)), 400))


def test_every_part_is_explained_with_its_number() -> None:
    shown = said(SAMPLE)
    for part in ("requested", "rounding", "cached", "context"):
        assert MEANINGS[part] in shown  # type: ignore[index]
    for number in (
        "14.0 GiB on NVIDIA H100",
        "memory_allocated() is 9.10 GiB",
        "memory_reserved() 12.3 GiB",
        "1.71 GiB held",
    ):
        assert number in shown
    assert "1.00 GiB " in shown
    assert "10.1 GiB allocated and 12.3 GiB reserved" in shown
    assert "for itself" not in shown
    assert "driver keeps 500 MiB for itself" in said(dataclasses.replace(SAMPLE, driver_reserved=500 * MIB))
    # The first version of NVML does not distinguish the two.
    first = said(dataclasses.replace(SAMPLE, driver_reserved=None))
    assert "the driver for itself" in first


def test_what_the_driver_hides_is_said() -> None:
    assert "all processes hold 15.0 GiB" in said(HIDDEN)
    assert "share of this one" in said(HIDDEN)
    assert "memory in use;" in said(ALONE)
    assert "context – (not known)" in said(ALONE)
    assert "cudaMallocAsync" in said(NO_REQUESTS)
    assert "No CUDA device" in words(detail_lines(device_facts(RunState()), 80))


TROUBLES = [NvmlTrouble(kind) for kind in NvmlTroubleKind] + [NvmlTrouble(NvmlTroubleKind.FAILED, 999)]


@pytest.mark.parametrize("trouble", TROUBLES, ids=[f"{each.kind}{each.code or ''}" for each in TROUBLES])
def test_what_keeps_the_driver_from_reporting_is_said(trouble: NvmlTrouble) -> None:
    state = coop_after(dataclasses.replace(ALONE, trouble=trouble))
    sentence = nvml_trouble_text(trouble)
    assert "unknown: " in sentence
    assert sentence in words(detail_lines(device_facts(state), 400))
    # In the views of the panel: the sentence in two lines, or a few words in one.
    for width in (28, 52, 70, 130):
        for most in (1, 2):
            lines = nvml_lines(state, width, most)
            assert 1 <= len(lines) <= most
            assert words(lines) in (f"▲ {sentence}", f"▲ {nvml_trouble_words(trouble)}")
    assert words(nvml_lines(state, 130)) == f"▲ {sentence}"


def test_unreported_by_driver_has_line() -> None:
    trouble = NvmlTrouble(NvmlTroubleKind.MISMATCH)
    state = coop_after(dataclasses.replace(ALONE, trouble=trouble))
    for height in (9, 20, 40):
        assert "mismatch" in text(phase_table(state, 52, height).lines)
    assert "mismatch" in text(step_lines(state, 52, 14, scale_of(state, Drawing()), {}))
    assert "unknown" not in text(phase_table(coop_after(SAMPLE), 52, 40).lines)


def test_headings_fit_where_they_can() -> None:
    for sample in (SAMPLE, HIDDEN, ALONE):
        found = reconcile(sample)
        assert isinstance(found, Reconciliation)
        assert len(heading(found, 38)) <= 38
