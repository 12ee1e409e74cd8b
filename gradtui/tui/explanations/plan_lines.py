"""The list of plans with their figures, and what the one under the cursor would do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.run.state.forecasts.plans import PlanFigures, PlanOffered, can_forecast, front
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.memory.step_peaks import step_peaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_host
from gradtui.run.state.time.module_times import measured_times
from gradtui.run.text import command_text, compiled_budget, duration_text, plural, short_bytes, why_by_rules
from gradtui.run.text.forecast import forecast_notes, memory_clauses, objection_clause, statistics_clauses
from gradtui.tui.rendering import BLANK, Line, Span, fit, printable, wrap

_FRONT = "● On the Pareto front: no other plan needs less of memory or work without more of the other."
_WORK = "Peaks are estimates, and so is the work of a step: it tells which is faster, not by how much."
_TIME = "Peaks are estimates, and so are the seconds of a step: they follow from the measured time of each module."
_TENTH = 1.05
_MARK, _COLUMN, _WIDE = 2, 12, 100
"""Cells of the mark and of each column, and the width from which there are two more columns."""
_SAME = 0.05


def progress(state: RunState, known: Sequence[PlanFigures]) -> str:
    """Return how many plans there are and, while some are not forecast yet, how many are."""
    done = sum(offered.forecast.is_final for offered in known)
    if done < len(known) and can_forecast(state):
        return f"forecasting: {done} of {plural(len(known), 'plan')}"
    return plural(len(known), "plan")


def heading_lines(state: RunState, known: Sequence[PlanFigures], width: int) -> list[Line]:
    """Return the lines above the plans: what is missing, the names of the columns, and the run as it is now."""
    lines = [line for text in _missing(state) for line in wrap(((text, "warning"),), width)]
    lines += [BLANK] if lines else []
    if not known:
        return [*lines, *wrap((("There is no plan that would change something.", "muted"),), width)]
    wide = width >= _WIDE
    return [*lines, _heading(width, wide=wide), _now(state, known, width, wide=wide)]


def plan_rows(known: Sequence[PlanFigures], current: int, width: int) -> list[Line]:
    """Return one line for each plan, the one with the index `current` under the cursor."""
    rows = [_row(offered, width, wide=width >= _WIDE) for offered in known]
    if current < len(rows):
        rows[current] = tuple((text, f"{role}@cursor") for text, role in rows[current])
    return rows


def plan_details(state: RunState, known: Sequence[PlanFigures], current: int, width: int, *, asks: bool) -> list[Line]:
    """Return what the plan under the cursor would do, and what the signs mean; `asks` if a second press applies it."""
    if current >= len(known):
        return []
    lines = [BLANK, *_details(known[current], width, asks=asks)]
    if any(offered.on_front for offered in known):
        lines += wrap(((_FRONT, "muted"),), width)
    about = _TIME if known[current].forecast.time is not None else _WORK
    notes = "".join(f" {note[0].upper()}{note[1:]}." for note in forecast_notes(state))
    return [*lines, *wrap(((about + notes, "muted"),), width)]


def _missing(state: RunState) -> Iterator[str]:
    """Yield why there are no exact figures, and what to do; nothing if there are."""
    if state.has_compiled_code or state.tree.compiled:
        yield f"Only estimates by the documented rules: {printable(why_by_rules(state))}."
        yield compiled_budget(state)
    elif state.operations is None:
        then = (
            "t profiles the next step"
            if is_on_host(state)
            else "one is, once that takes at most 1 % of the time so far"
        )
        yield f"No step was recorded yet, so there are only estimates by the documented rules: {then}."
    elif state.operations.missing:
        yield f"No exact forecast: {printable(state.operations.missing)}."
    elif step_peaks(state) is None:
        yield "No forecast of the peak: no step of these models was profiled."


def _heading(width: int, *, wide: bool) -> Line:
    titles = ["peak", "activations", *(("gradients", "opt. state") if wide else ()), "a step"]
    return _cells("", "what trains", titles, width, "title", ["title"] * len(titles))


def _now(state: RunState, known: Sequence[PlanFigures], width: int, *, wide: bool) -> Line:
    best = front([*((offered.memory, offered.time) for offered in known), (0, 1.0)])
    peaks = step_peaks(state)
    peak = above_load(state, peaks.highest[1]) if peaks is not None else None
    kept = state.tree.saved.total if state.tree.saved is not None else None
    more = ("", "") if wide else ()
    times = measured_times(state)
    cells = [short_bytes(peak), short_bytes(kept), *more, duration_text(times.step) if times is not None else ""]
    is_known = any(offered.memory is not None for offered in known)
    mark = "●" if is_known and len(known) in best else ""
    return _cells(mark, "as it is now", cells, width, "muted", ["muted"] * len(cells))


def _row(offered: PlanFigures, width: int, *, wide: bool) -> Line:
    made = offered.forecast
    activations = _signed(made.activations, is_exact=made.is_exact)
    new, kept = made.new_state, made.kept_state
    # A freeze keeps the state of what it freezes.
    of_plan = offered.plan.optimizer_state
    state = (_signed(new + of_plan, is_exact=True) if kept is not None and new is not None else "–",)
    more = (_signed(made.gradients, is_exact=made.is_exact), *state) if wide else ()
    work, role = _step(offered)
    cells = [_signed(offered.memory, is_exact=True), activations, *more, work]
    roles = [_role(offered.memory), _role(made.activations), *["text"] * len(more), role]
    return _cells("●" if offered.on_front else "", offered.plan.name, cells, width, "text", roles)


def _cells(mark: str, name: str, cells: Sequence[str], width: int, role: str, roles: Sequence[str]) -> Line:
    room = max(10, width - _MARK - _COLUMN * len(cells))
    name = name if len(name) <= room - 1 else f"{name[: room - 2]}…"
    spans: list[Span] = [(mark.ljust(_MARK), "good"), (name.ljust(room), role)]
    spans += [(cell.rjust(_COLUMN), role) for cell, role in zip(cells, roles)]
    return fit(tuple(spans), width)


def _signed(size: int | None, *, is_exact: bool) -> str:
    if size is None:
        return "–"
    if size == 0:
        return "same"
    return f"{'' if is_exact else '≈ '}{'−' if size < 0 else '+'}{short_bytes(abs(size))}"


def _role(size: int | None) -> str:
    return "muted" if not size else "good" if size < 0 else "warning"


def _step(offered: PlanFigures) -> tuple[str, str]:
    work, time = offered.time, offered.forecast.time
    if time is not None:
        role = (
            "muted" if abs(time.seconds - time.now) <= time.margin else "good" if time.seconds < time.now else "warning"
        )
        return f"≈ {duration_text(time.seconds)}", role
    if work is None:
        return "–", "muted"
    if abs(work - 1.0) <= _SAME:
        return "same", "muted"
    word, role, times = ("faster", "good", 1.0 / work) if work < 1.0 else ("slower", "warning", work)
    # Less than a tenth is no number that an estimate can tell.
    return (f"{times:.1f}× {word}" if times >= _TENTH else word), role


def _details(offered: PlanFigures, width: int, *, asks: bool) -> list[Line]:
    names = [printable(command_text(make(0))) for make in offered.plan.commands]
    words = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    key = "Press enter again to apply it: " if asks else "enter applies it: "
    undone = f" u undoes its {len(names)} changes one by one." if len(names) > 1 else ""
    lines = wrap(((key, "pending" if asks else "key"), (f"{words}.{undone}", "text")), width)
    made = offered.forecast
    if objection := objection_clause(made):
        return [*lines, *wrap(((f"{printable(objection)}.", "warning"),), width)]
    clauses = _state_clauses(offered.plan) or [*statistics_clauses(made), *memory_clauses(made)]
    lines += wrap(((" · ".join(clauses), "muted"),), width)
    if made.why_not_exact:
        lines += wrap(((f"An estimate: {printable(', '.join(made.why_not_exact))}.", "warning"),), width)
    return list(lines)


def _state_clauses(plan: PlanOffered) -> list[str]:
    """Return what a plan does with the optimizer state of what is frozen; empty if it keeps it."""
    if plan.state == "offload":
        return [
            f"moves {short_bytes(plan.host_state)} of optimizer state that no step uses to host memory",
            "an unfreeze loads it back",
        ]
    if plan.state == "drop":
        size = -plan.optimizer_state - plan.host_state
        return [f"frees {short_bytes(size)} of optimizer state that no step uses", "an unfreeze begins it anew"]
    return []
