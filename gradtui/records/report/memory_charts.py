"""The charts of memory: by phase, within a step, over steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtui.protocol.vocabulary import Phase
from gradtui.records.report.chart_parts import (
    HEIGHT,
    IF_NEAREST,
    Chart,
    Spec,
    Steps,
    base,
    bytes_axis,
    nearest,
    over_steps,
    tooltip,
)
from gradtui.records.report.memory_contents import MemoryContents, PhaseMemory, StepMemory, part_names
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP
from gradtui.run.text import bounded, short_bytes
from gradtui.system.byte_units import unit_of

_ROW_HEIGHT = 30
_LEGEND_COLUMNS = "width && windowSize()[0] < 420 ? 2 : windowSize()[0] < 560 ? 3 : 9"
"""`width` makes the browser count again when the window has another size. It also changes while the chart is laid out, which
would leave too little room for the legend."""


def phases_chart(memory: MemoryContents) -> Chart | None:
    """Return a bar for each phase, divided into its parts."""
    phases = [phase for phase in memory.phases if phase.parts and phase.total is not None]
    if not phases:
        return None
    unit, size = unit_of(max(max(phase.total or 0, phase.peak or 0) for phase in phases))
    y = {
        "field": "phase",
        "type": "nominal",
        "sort": [phase.phase.value for phase in phases],
        "axis": {"title": None, "ticks": False, "domain": False, "labelPadding": 8},
    }
    spec = {
        **base(_ROW_HEIGHT * len(phases)),
        "encoding": {"y": y},
        "layer": [_part_layer(phases, unit, size), _peak_layer(phases, unit, size)],
    }
    return Chart("phases", "Memory at the end of each phase, divided into parts, and the highest peak within it", spec)


def _part_layer(phases: Sequence[PhaseMemory], unit: str, size: int) -> Spec:
    names = part_names()
    rows = [
        {
            "phase": phase.phase.value,
            "part": names[role],
            "order": order,
            "value": part / size,
            "text": short_bytes(part),
        }
        for phase in phases
        for order, (role, _, part) in enumerate(phase.parts)
        if part is not None and part > 0
    ]
    filled = {row["part"] for row in rows}
    shown = {role: name for role, name in names.items() if name in filled}
    colour = {
        "field": "part",
        "type": "nominal",
        "scale": {"domain": [*shown.values()], "range": [f"var(--{role.replace('_', '-')})" for role in shown]},
        "legend": {
            "title": None,
            "orient": "top",
            "symbolType": "square",
            "columns": {"expr": _LEGEND_COLUMNS},
        },
    }
    return {
        "data": {"values": rows},
        "mark": {"type": "bar", "height": {"band": 0.62}},
        "encoding": {
            "x": bytes_axis(unit) | {"stack": "zero"},
            "order": {"field": "order"},
            "color": colour,
            "tooltip": tooltip(("phase", "end of"), ("part", "part"), ("text", "memory")),
        },
    }


def _peak_layer(phases: Sequence[PhaseMemory], unit: str, size: int) -> Spec:
    rows = [
        {
            "phase": phase.phase.value,
            "value": phase.peak / size,
            "text": bounded(phase.peak_bound, short_bytes(phase.peak), " "),
        }
        for phase in phases
        if phase.peak is not None
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "tick", "color": "var(--text)", "thickness": 2, "height": {"band": 0.86}},
        "encoding": {"x": bytes_axis(unit), "tooltip": tooltip(("phase", "peak within"), ("text", "memory"))},
    }


def step_chart(step: StepMemory | None) -> Chart | None:
    """Return the course of memory within a step."""
    if step is None:
        return None
    unit, size = unit_of(step.peak)
    rows = _course(step, size)
    phases = list(dict.fromkeys(row["phase"] for row in rows))
    colour = {
        "field": "phase",
        "type": "nominal",
        "scale": {"domain": phases, "range": [f"var(--phase-{phase})" for phase in phases]},
        "legend": {"title": None, "orient": "top", "symbolType": "square"},
    }
    x = {
        "field": "at",
        "type": "quantitative",
        "scale": {"nice": False, "zero": False},
        "axis": {"title": "allocations and frees, in their order", "labels": False, "ticks": False, "grid": False},
    }
    words = tooltip(("phase", "phase"), ("text", "memory"))
    highest = max(rows, key=lambda row: float(row["value"])) | {"text": short_bytes(step.peak)}
    peak = {
        "type": "point",
        "shape": "triangle-down",
        "filled": True,
        "size": 80,
        "color": "var(--text)",
        "yOffset": -7,
    }
    spec = {
        **base(HEIGHT),
        "data": {"values": rows},
        "encoding": {"x": x, "y": bytes_axis(unit) | {"stack": None}},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.85}, "encoding": {"detail": {"field": "stretch"}, "color": colour}},
            {
                "params": [nearest("x")],
                "mark": {"type": "point", "filled": True, "size": 50, "color": "var(--text)"},
                "encoding": {"opacity": IF_NEAREST, "tooltip": words},
            },
            {"data": {"values": [highest]}, "mark": peak, "encoding": {"tooltip": words}},
        ],
    }
    return Chart("step", f"Memory within step {step.step:,}", spec)


def _course(step: StepMemory, size: int) -> list[dict[str, Any]]:
    """Return the totals with their places in the step. Each stretch begins where the one before it ends."""
    rows: list[dict[str, Any]] = []
    before: int | None = None
    at = 0
    for number, part in enumerate(step.parts):
        name = part.phase.value if part.phase in PHASES_OF_STEP else Phase.OTHER.value
        totals = part.totals if before is None else (before, *part.totals)
        begin = at - (before is not None)
        rows += [
            {"at": begin + index, "phase": name, "stretch": number, "value": total / size, "text": short_bytes(total)}
            for index, total in enumerate(totals)
        ]
        at, before = at + len(part.totals), part.totals[-1]
    return rows


def totals_chart(memory: MemoryContents, steps: Steps) -> Chart | None:
    """Return the totals at the end of the phases, over steps, without `totals_base`."""
    lines = {phase.value: points for phase, points in memory.totals if len(points) > 1}
    if not lines:
        return None
    left_out = memory.totals_base
    most = max(
        [total for points in lines.values() for _, total in points] + [spike.peak_bytes for spike in memory.spikes]
    )
    unit, size = unit_of(most - left_out)
    rows = [
        {"step": step, "value": held / size, "curve": name, "text": short_bytes(held)}
        for name, points in lines.items()
        for step, held in ((step, round(total) - left_out) for step, total in points)
    ]
    spec = over_steps(rows, [*lines], steps)
    spec["encoding"]["y"] = bytes_axis(unit)
    for layer in spec["layer"]:
        layer["encoding"]["color"]["scale"]["range"] = [f"var(--phase-{name})" for name in lines]
    if memory.spikes:
        spec["layer"].append(_spike_layer(memory, left_out, size))
    return Chart("totals", "Memory at the end of the phases over steps", spec, has_steps=True)


def _spike_layer(memory: MemoryContents, left_out: int, size: int) -> Spec:
    """Return a mark above each spike, with what it was."""
    rows = [
        {
            "step": spike.step,
            "value": (spike.peak_bytes - left_out) / size,
            "phase": spike.phase,
            "text": f"{short_bytes(spike.peak_bytes - left_out)}, usually {short_bytes(spike.usual_bytes - left_out)}",
        }
        for spike in memory.spikes
    ]
    mark = {
        "type": "point",
        "shape": "triangle-down",
        "filled": True,
        "size": 60,
        "color": "var(--text)",
        "yOffset": -7,
        "clip": True,
    }
    words = tooltip(("step", "step"), ("phase", "spike in"), ("text", "memory"))
    return {"data": {"values": rows}, "mark": mark, "encoding": {"tooltip": words}}
