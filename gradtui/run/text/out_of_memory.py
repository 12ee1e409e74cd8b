"""A failed allocation in words: one line for a log, and the text of the file that is kept of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradtui.protocol.events import (
    Event,
    GradientsMeasured,
    MemoryMeasured,
    OutOfMemory,
    StepMemoryMeasured,
    StepsMeasured,
    StepTotals,
)
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES
from gradtui.run.state.parts.bounds import bound_of_peak
from gradtui.run.text.units import bounded, size_text

_NAMED = 4
"""Maximum number of categories on the one line, the largest first."""

_STEPS = 8
"""Of steps that were measured together, the newest ones that a report lists."""


def oom_place(event: OutOfMemory) -> str:
    """Return which device ran out of memory, and in which module and phase, as far as that is known."""
    module = "" if event.module is None else event.module or "the model"
    device = event.device.partition(":")[0].upper()
    return f"{device} out of memory in {f'{module} ({event.phase})' if module else event.phase.value}"


def oom_headline(event: OutOfMemory) -> str:
    """What ran out where, who held it, and where it is written down."""
    held = sorted(_with_other(event), key=lambda pair: -pair[1])
    named = [f"{size_text(size)} {category.replace('_', ' ')}" for category, size in held[:_NAMED] if size > 0]
    parts = [", ".join(named)] if named else []
    if event.requested is not None:
        parts.append(f"{size_text(event.requested)} more were requested")
    if not event.categories and event.number > 1:
        parts.append(f"failure {event.number:,} of this run, without a full report")
    if event.file is not None:
        parts.append(f"written to {event.file}")
    elif event.trouble is not None:
        parts.append(f"not written down: {event.trouble}")
    return oom_place(event) + (f": {'; '.join(parts)}" if parts else "")


def oom_report(event: OutOfMemory, before: Iterable[Event]) -> str:
    """The whole file: the moment, who held what, the largest storages, and the last steps that were measured."""
    module = "–" if event.module is None else event.module or "the model itself"
    lines = [
        oom_place(event),
        "",
        f"when       {event.at:.1f} s after the start, after {event.step} steps; failure {event.number} of this run",
        f"where      {event.device}, phase {event.phase}, module {module}",
        f"requested  {_bytes(event.requested)}",
        f"message    {event.message or '–'}",
        "",
        *_ledger(event),
        "",
        *_largest(event),
        "",
        "Last steps, as far as they were measured (– is unknown)",
        *(list(_steps(before)) or ["  none"]),
    ]
    return "\n".join(lines) + "\n"


def _with_other(event: OutOfMemory) -> list[tuple[str, int]]:
    pairs = list(event.categories)
    if event.total is not None and pairs:
        pairs.append(("other", event.total - sum(size for _, size in pairs)))
    return pairs


def _bytes(count: int | None) -> str:
    return "–" if count is None else f"{count:,} B ({size_text(count)})"


def _ledger(event: OutOfMemory) -> Iterator[str]:
    sign = "" if event.whole else " (a lower bound: the search ran out of time)"
    yield f"Held at that moment, each storage once{sign}"
    for category, size in _with_other(event):
        yield f"  {category.replace('_', ' '):<16} {_bytes(size)}"
    yield f"  {'total':<16} {_bytes(event.total)}"


def _largest(event: OutOfMemory) -> Iterator[str]:
    yield "Largest storages"
    yield f"  {'all, B':>16} {'number':>7} {'each, B':>16}  tensor and owner"
    for storage in event.largest:
        each = f"{storage.bytes * storage.count:>16,} {storage.count:>7,} {storage.bytes:>16,}"
        shape = "×".join(map(str, storage.shape))
        yield f"  {each}  {storage.dtype}[{shape}]  {storage.owner}"


def _steps(before: Iterable[Event]) -> Iterator[str]:
    memory: dict[int, list[str]] = {}
    figures: dict[int, tuple[float | None, float | None]] = {}
    for event in before:
        if isinstance(event, MemoryMeasured):
            memory.setdefault(event.step, []).append(_phase(event))
        elif isinstance(event, StepMemoryMeasured):
            for totals in event.totals[-_STEPS:]:
                memory.setdefault(totals.step, []).append(_totals(totals))
        for step, loss, norm in _step_figures(event):
            known_loss, known_norm = figures.get(step, (None, None))
            figures[step] = known_loss if loss is None else loss, known_norm if norm is None else norm
    for step in sorted({*memory, *figures}):
        yield f"  step {step:,}" if step else "  before the first step"
        yield from (f"    {line}" for line in memory.get(step, ()))
        if step in figures:
            loss, norm = figures[step]
            yield f"    loss {_number(loss)}, gradient norm {_number(norm)}"


def _step_figures(event: Event) -> Iterator[tuple[int, float | None, float | None]]:
    """Yield step, loss and norm, each None where the event does not have it."""
    if isinstance(event, GradientsMeasured):
        yield event.step, event.loss, event.total
    elif isinstance(event, StepsMeasured):
        for losses in event.losses:
            yield from ((step, loss, None) for step, loss in [*zip(losses.steps, losses.losses)][-_STEPS:])
        yield from ((figures.step, figures.loss, figures.total) for figures in event.figures[-_STEPS:])


def _totals(totals: StepTotals) -> str:
    known = (("forward", totals.forward), ("backward", totals.backward), ("optimizer", totals.optimizer))
    return "after " + ", ".join(f"{phase} {size_text(total)}" for phase, total in known if total is not None)


def _phase(event: MemoryMeasured) -> str:
    held = event.held
    named = [(name, getattr(held, name, None)) for name in MEMORY_CATEGORIES]
    parts = ", ".join(f"{name.replace('_', ' ')} {size_text(size)}" for name, size in named if size)
    peak = "–" if event.peak is None else _peak_text(event.peak, event)
    total = "–" if held.total is None else size_text(held.total)
    return f"{event.phase.value:<10} {total}, peak {peak}: {parts}"


def _peak_text(peak: int, event: MemoryMeasured) -> str:
    return bounded(bound_of_peak(is_exact=event.peak_exact, devices=event.devices), size_text(peak), " ")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
