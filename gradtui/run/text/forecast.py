"""Describe in words what a freeze or an unfreeze would change, and why figures of it are estimates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gradtui.protocol.commands import StateOption, TraceStep
from gradtui.protocol.forecasts import TimeForecast
from gradtui.run.state.forecasts.forecast import Forecast
from gradtui.run.state.forecasts.forecast_score import Score
from gradtui.run.state.forecasts.free_memory import Shortage
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_cuda
from gradtui.run.text import refusals
from gradtui.run.text.freezes import kinds_text
from gradtui.run.text.units import count_text, plural, short_bytes, short_number, unit_of_time

if TYPE_CHECKING:
    from gradtui.protocol.summary_changes import ForecastError

_IN = {"peak": "the peak"}
COMPILED_CODE = "the script uses torch.compile, and gradtui records no step of compiled code"
NOTHING_WOULD_TRAIN = "Nothing would train: loss.backward() would fail"


def forecast_notes(state: RunState) -> tuple[str, ...]:
    """Return what holds for all figures of a forecast on CUDA devices; empty on others."""
    if not is_on_cuda(state):
        return ()
    together = ("peaks are those of all devices together",) if state.step_memory.devices else ()
    return ("CUDA: checked on a simulated device only", *together)


def forecast_clauses(forecast: Forecast, state: StateOption = "keep") -> list[str]:
    """Return what would change as clauses, the most important first; each estimate in bytes says that it is one.

    `state` is what a freeze does with the optimizer's state.
    """
    if not forecast.stops and not forecast.starts:
        return statistics_clauses(forecast) or ["nothing would change"]
    if objection := objection_clause(forecast):
        return [objection]
    elements = count_text(forecast.elements).strip()
    parameters = f"{elements} parameter{'' if forecast.elements == 1 else 's'}"
    return [parameters, *statistics_clauses(forecast), *memory_clauses(forecast, state)]


def objection_clause(forecast: Forecast) -> str:
    """Return why the run would refuse the change; empty if it would not."""
    if forecast.would_fail:
        return NOTHING_WOULD_TRAIN
    never = forecast.untrainable
    return refusals.not_floating_point(never.path, never.dtype) if never is not None else ""


def statistics_clauses(forecast: Forecast) -> list[str]:
    """Return whose running statistics would be held, or collected again; empty if nobody's."""
    held = [f"{kinds_text(forecast.holds)} held in eval mode"] if forecast.holds else []
    return [*held, f"{kinds_text(forecast.releases)} no longer held in eval mode"] if forecast.releases else held


def stay_frozen_clause(tensors: int) -> str:
    """Return that an unfreeze that restores leaves tensors of the row frozen."""
    return f"{plural(tensors, 'tensor')} stay{'s' if tensors == 1 else ''} frozen as before"


def checkpoint_clauses(forecast: Forecast) -> list[str]:
    """Return what checkpointing a module, or the end of it, would change: the activations, and the work of a step."""
    clauses = [_activations(forecast)]
    if forecast.time is not None:
        clauses += time_clauses(forecast)
    elif forecast.work is not None:
        times = f"{forecast.work:.2f}".rstrip("0").rstrip(".")
        clauses.append("about the same work" if times == "1" else f"about {times}× the work of a step")
    return clauses


def memory_clauses(forecast: Forecast, state: StateOption = "keep") -> list[str]:
    """Return the same of memory alone."""
    clauses = _peak(forecast)
    if forecast.without_gradient:
        count = forecast.without_gradient
        which = plural(count, "tensor") if count < len(forecast.starts) else "all" if count > 1 else "it"
        verbs = ("is", "gets") if count == 1 else ("are", "get")
        clauses.append(f"{which} {verbs[0]} used under no_grad and {verbs[1]} no gradient")
    if forecast.gradients or not forecast.without_gradient:
        clauses.append(f"gradients {changed_bytes(forecast.gradients, is_exact=forecast.is_exact)}")
    return [*clauses, *_optimizer_clauses(forecast, state), _activations(forecast), *time_clauses(forecast)]


def time_clauses(forecast: Forecast) -> list[str]:
    """Return what a step would take, as a list of one clause: `a step about 152 ms ± 12 (now 196)`; empty if unknown."""
    return [f"a step {predicted_time(forecast.time)}"] if forecast.time is not None else []


def predicted_time(time: TimeForecast) -> str:
    """Return the forecast duration of a step: `about 152 ms ± 12 (now 196)`."""
    unit, size = unit_of_time(time.now)
    now, then, margin = (short_number(seconds / size) for seconds in (time.now, time.seconds, time.margin))
    return f"about {then} {unit} ± {margin} (now {now})"


def _optimizer_clauses(forecast: Forecast, state: StateOption) -> list[str]:
    clauses = []
    if forecast.joining:
        clauses.append(
            f"{plural(forecast.joining, 'tensor')} join{'s' if forecast.joining == 1 else ''} {_joined(forecast)}"
        )
    if forecast.stops and forecast.owners and forecast.kept_state != 0:
        clauses.append(_kept(forecast.owners, forecast.kept_state, state))
    if forecast.starts and forecast.new_state != 0:
        whose = "state" if forecast.joining else "new optimizer state"
        clauses.append(f"{whose} {'not known' if forecast.new_state is None else changed_bytes(forecast.new_state)}")
    return clauses


def _joined(forecast: Forecast) -> str:
    return forecast.joins or "an optimizer"


def _kept(owners: Sequence[str], size: int | None, state: StateOption) -> str:
    verb, whose = (f"{state}s", "its") if len(owners) == 1 else (state, "their")
    what = f"{whose} state" if size is None else f"about {short_bytes(size)} of state"
    return f"{' and '.join(owners)} {verb} {what}"


def _activations(forecast: Forecast) -> str:
    if forecast.activations is None:
        return "activations not known"
    more = " or more" if forecast.at_least else ""
    return f"activations {changed_bytes(forecast.activations, is_exact=forecast.is_exact)}{more}"


def _peak(forecast: Forecast) -> list[str]:
    if forecast.peak is None or forecast.peak_phase is None:
        return []
    if forecast.peak_now is None:
        return [f"peak {changed_bytes(forecast.peak)}, then in {forecast.peak_phase.value}"]
    then, change = short_bytes(forecast.peak_now + forecast.peak), changed_bytes(forecast.peak, is_exact=True)
    return [f"peak about {then} in {forecast.peak_phase.value} ({change})"]


def shortage_clause(found: Shortage) -> str:
    """Return that a change does not fit: `needs about 1.20 GiB more, and 819 MiB are free`."""
    least = "at least " if found.at_least else ""
    free = f", and {short_bytes(found.free)} are free"
    if found.device is not None:
        free = f" on cuda:{found.device}, where {short_bytes(found.free)} are free"
    return f"needs {least}about {short_bytes(found.needed)} more{free}"


def forecast_error_words(errors: Mapping[str, Score | ForecastError | None]) -> list[str]:
    """Return how far the forecasts were from what was measured: `off by 0.0 % in activations (3 changes)`; or nothing.

    `errors`: by category.
    """
    found = {name: each for name, each in errors.items() if each is not None}
    if not found:
        return []
    parts = ", ".join(f"{100 * (each.error or 0.0):.1f} % in {_IN.get(name, name)}" for name, each in found.items())
    return [f"off by {parts} ({plural(max(score.changes for score in found.values()), 'change')})"]


def changed_bytes(size: int, *, is_exact: bool = False) -> str:
    """Return bytes that appear or go: `about −1.20 KiB`, `+3 B` where they are exact, `unchanged`."""
    if size == 0:
        return "unchanged"
    return f"{'' if is_exact else 'about '}{'−' if size < 0 else '+'}{short_bytes(abs(size))}"


_BUDGET = "torch._functorch.config.activation_memory_budget"
"""In the source of torch._functorch.config: 0.0 keeps what checkpointing the whole compiled region would keep, 1.0, the
default, what is fastest."""


def compiled_budget(state: RunState) -> str:
    """Return in one line what saves activations where modules are compiled; empty where none are."""
    if not state.tree.compiled:
        return ""
    return (
        f"Compiled modules cannot be checkpointed: set {_BUDGET} to a number from 0 (least memory) to 1 (the default) "
        "before they are compiled."
    )


def why_by_rules(state: RunState) -> str:
    """Return why the planner has no step from which it could forecast."""
    operations = state.operations
    if state.has_compiled_code or state.tree.compiled:
        return COMPILED_CODE
    if operations is None:
        refused = next((each.reason for each in reversed(state.refused) if isinstance(each.command, TraceStep)), "")
        return f"no step was recorded: {refused}" if refused else "no step was recorded"
    return operations.missing or "several optimizers take turns, or the forward has too many operations"
