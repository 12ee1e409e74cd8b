"""Sections of the page with charts and their numbers: loss and gradients, memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradtui.report.chart_parts import Chart
from gradtui.report.charts import other_loss
from gradtui.report.contents import Contents, sentence
from gradtui.report.html_elements import Markup, tag
from gradtui.report.memory_contents import (
    MemoryContents,
    PhaseMemory,
    StepMemory,
    duration_words,
    part_names,
    share_words,
)
from gradtui.report.page_parts import Column, figure, folded, paragraphs, section, table
from gradtui.text import bounded, number_text, plural, short_bytes, short_rate

_ROWS = 48
"""Rows of the table that has the numbers of the curves."""


def curves_section(contents: Contents, charts: Mapping[str, Chart]) -> Markup:
    """Return loss, gradient norms and learning rates over steps."""
    title = "Loss and gradients"
    if not contents.loss.points and not contents.norms[0].points:
        return section("curves", title, tag("p", "No loss and no gradient norm was recorded."))
    marks = contents.marks
    dashed = f"Dashed lines: {plural(len(marks), 'event')}. Point at one, or see the list below." if marks else ""
    return section(
        "curves",
        title,
        tag("p", sentence(contents.bad_step), class_="bad") if contents.bad_step else None,
        _chooser() if any(chart.has_steps for chart in charts.values()) else None,
        figure(
            charts.get("loss"),
            f"Loss of {contents.loss_of}" if contents.other_losses else "Loss",
            " ".join(filter(None, (_log_sentence(charts.get("loss")), dashed))),
        ),
        *(
            figure(charts.get(other_loss(at)), f"Loss of {curve.name}", _log_sentence(charts.get(other_loss(at))))
            for at, curve in enumerate(contents.other_losses)
        ),
        figure(charts.get("norms"), "Gradient norm", f"L2 norm of all gradients. {_log_sentence(charts.get('norms'))}"),
        figure(charts.get("rates"), "Learning rates", "Those that have changed."),
        folded("The numbers of these curves", _numbers(contents)),
        folded("The events", _marks(contents)) if marks else None,
    )


def _log_sentence(chart: Chart | None) -> str:
    return "The axis is logarithmic." if chart is not None and chart.is_log else ""


def _chooser() -> Markup:
    """Return the controls for the steps that the charts show. The script of the page shows them and gives them their range."""
    controls = [
        tag(
            "label",
            tag("span", words),
            tag("input", type="range", id=name),
            tag("output", for_=name, id=f"{name}-shown"),
        )
        for words, name in (("from", "first-step"), ("to", "last-step"))
    ]
    return tag(
        "fieldset",
        tag("legend", "Steps shown in all charts"),
        *controls,
        tag("button", "All", type="button", id="all-steps"),
        tag("span", "or drag across a chart", class_="muted with-mouse"),
        id="steps",
        hidden=True,
    )


def _numbers(contents: Contents) -> Markup:
    others = [replace(curve, name=f"loss of {curve.name}") for curve in contents.other_losses]
    curves = [curve for curve in (contents.loss, *others, *contents.norms) if curve.points]
    texts = [_number] * len(curves) + [short_rate] * len(contents.rates)
    curves += contents.rates
    steps = sorted({step for curve in curves for step, _ in curve.points})
    known = [dict(curve.points) for curve in curves]
    rows = [
        [f"{step:,}", *(text(points[step]) if step in points else "" for text, points in zip(texts, known))]
        for step in _thinned(steps, _ROWS)
    ]
    columns = [Column("Step", is_number=True), *(Column(curve.name.capitalize(), is_number=True) for curve in curves)]
    return table(f"{len(rows):,} of the {plural(len(steps), 'step')} that were measured", columns, rows)


def _number(value: float) -> str:
    return number_text(value).strip()


def _thinned(steps: Sequence[int], most: int) -> Sequence[int]:
    """Return at most `most` of the steps, evenly spaced, with the first and the last one."""
    if len(steps) <= most:
        return steps
    return [steps[round(index * (len(steps) - 1) / (most - 1))] for index in range(most)]


def _marks(contents: Contents) -> Markup:
    rows = [[f"{mark.step:,}", mark.kind, mark.text] for mark in contents.marks]
    columns = [Column("After step", is_number=True), Column("Event"), Column("What")]
    return table("What may explain a bend in a curve", columns, rows)


def memory_section(contents: Contents, charts: Mapping[str, Chart]) -> Markup:
    """Return the memory of the phases, within a step and over steps."""
    memory = contents.memory
    if not memory.phases:
        return section("memory", "Memory", tag("p", "No memory was measured."))
    bars = (
        "The bars: at the end of a phase, in the last step that was measured. The strokes: the highest peak of the run."
    )
    return section(
        "memory",
        "Memory",
        tag("p", f"Source: {memory.source}.", class_="muted") if memory.source else None,
        # A sentence may begin with a path, which stays as it is.
        paragraphs([f"{note}." for note in memory.notes]),
        figure(charts.get("phases"), "By phase", bars),
        _phases(memory),
        figure(
            charts.get("step"), "Within a step", f"{_step_caption(memory.step)} {_without(memory, memory.step.base)}"
        )
        if memory.step is not None
        else tag("p", memory.no_step),
        _holders(memory.step) if memory.step is not None and memory.step.holders else None,
        figure(charts.get("totals"), "Over steps", f"At the end of the phases. {_without(memory, memory.totals_base)}")
        if memory.totals
        else None,
        _device(memory) if memory.device else None,
    )


def _phases(memory: MemoryContents) -> Markup:
    names = part_names()
    filled = {role for phase in memory.phases for role, _, size in phase.parts if size}
    shown = [role for role in names if role in filled]
    columns = [
        Column("Phase"),
        Column("Time", is_number=True),
        Column("Of a step", is_number=True),
        Column("At its end", is_number=True),
        Column("Highest peak", is_number=True),
        *(Column(names[role].capitalize(), is_number=True) for role in shown),
    ]
    rows = [_phase_row(phase, shown) for phase in memory.phases]
    return table("Time and memory of each phase", columns, rows, css="cards")


def _phase_row(phase: PhaseMemory, shown: list[str]) -> list[str]:
    sizes = {role: size for role, _, size in phase.parts}
    owner = f" with {phase.owner}" if phase.owner else ""
    return [
        phase.phase.value,
        duration_words(phase.seconds),
        share_words(phase.share),
        short_bytes(phase.total),
        bounded(phase.peak_bound, short_bytes(phase.peak), " ") + owner if phase.peak is not None else "",
        *(short_bytes(sizes.get(role)) for role in shown),
    ]


def _step_caption(step: StepMemory) -> str:
    place = f" at {step.peak_place}" if step.peak_place else ""
    words = f"Step {step.step:,}. Highest in {step.peak_phase.value}{place}: {short_bytes(step.peak)}."
    return words if step.is_complete else f"{words} Not every allocation of the step was followed."


def _without(memory: MemoryContents, base: int) -> str:
    """Return what a chart leaves out."""
    if not base:
        return ""
    what = "from before training (Python, libraries)" if base == memory.before_training else "that are always held"
    return f"Without the {short_bytes(base)} {what}."


def _holders(step: StepMemory) -> Markup:
    rows = [
        [each.kind, each.place, short_bytes(each.bytes), _share(each.bytes, step.peak), f"{each.tensors:,}"]
        for each in step.holders
    ]
    columns = [
        Column("Kind"),
        Column("Module"),
        Column("Memory", is_number=True),
        Column("Of the peak", is_number=True),
        Column("Tensors", is_number=True),
    ]
    caption = f"What held memory at the peak of step {step.step:,}, largest first"
    return folded("Who held the memory at the peak", table(caption, columns, rows, omitted=step.holders_omitted))


def _share(part: int, whole: int) -> str:
    return share_words(part / whole if whole else None)


def _device(memory: MemoryContents) -> Markup:
    rows = [[name, short_bytes(size)] for name, size in memory.device]
    return table("Memory in use on the device, by part", [Column("Part"), Column("Memory", is_number=True)], rows)
