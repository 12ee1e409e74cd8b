"""The memory profile of one step as lines and a curve: where the peak was, which tensors held it, and its course. Pure."""

from __future__ import annotations

from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.run.state.run_state import RunState
from gradtui.run.text.memory import no_profile_text
from gradtui.run.text.units import bytes_text, plural, share_text, short_bytes
from gradtui.tui.charts.request import PlotRequest, Series
from gradtui.tui.rendering import BLANK, PHASE_ROLES, Line, elide_start, fit, pad, printable, wrap

CURVE_ROWS = 11

_KIND_NAMES = {"optimizer_state": "optimizer"}
_BYTES_WIDTH, _SHARE_WIDTH, _KIND_WIDTH = 9, 7, 13
_MAX_OWNERS = 3
"""How many modules are named for each kind."""


def step_lines(state: RunState, width: int) -> list[Line]:
    """Describe the memory profile of the newest profiled step; empty if there is none."""
    step = state.step_profile
    if step is None:
        return []
    where = "" if step.peak_module < 0 else f" at {_path(state, step.peak_module)}"
    before = min(state.held_since_load or 0, step.peak)
    peak = f"{short_bytes(step.peak - before)} at its highest, in {step.peak_phase}{where}"
    lines = [*wrap(((f"Step {step.step:,}: ", "strong"), (peak, "text")), width), BLANK]
    lines += [fit(line, width) for line in _holdings(state, step, before, width)]
    if before:
        words = f"+{short_bytes(before)} held before training (Python, libraries): in no figure here, nor in the curve"
        lines += wrap(((words, "muted"),), width)
    lines.append(BLANK)
    if not step.whole:
        lines += wrap((("It made more allocations than are followed: a part is missing.", "warning"),), width)
    return lines


def waiting_lines(state: RunState, width: int, runs_step: bool = False) -> list[Line]:
    """Say that the requested step has not ended yet. `runs_step`: training was paused, and the request runs one step."""
    held = " Training is paused: esc, then n runs one step." if state.paused else ""
    if runs_step:
        held = " Training was paused: this runs one step, then training is paused again."
    words = f"Every allocation of the next step is followed. Waiting for it to end.{held}"
    return [*wrap(((words, "muted"),), width), BLANK]


def ran_lines(width: int) -> list[Line]:
    """Say that the profile ran one step of a paused run."""
    words = "Training was paused. gradtui ran this one step, and training is paused again."
    return [*wrap(((words, "muted"),), width), BLANK]


def unprofiled_lines(state: RunState, width: int) -> list[Line]:
    """Say that no step was profiled, and when the first will be."""
    return wrap(((no_profile_text(state), "muted"),), width)


def closing_lines(state: RunState, width: int) -> list[Line]:
    """Say what the figures leave out."""
    step = state.step_profile
    words = (
        "The CUDA allocator recorded every block, with what kernels take while they run. In backward, the module is that "
        "whose saved tensors are freed, or whose gradients are made, next. Checked on a simulated device only."
        if step is not None and step.blocks is not None
        else "What a kernel allocates and frees while it runs (a convolution's workspace) is not seen."
    )
    words = f"In the order of the step's allocations and frees. {words}"
    return [BLANK, *wrap(((words, "faint"),), width)]


def step_request(step: StepMemoryProfiled, width: int, height: int, before: int = 0) -> PlotRequest:
    """Return the request for the curve, with one colour per phase; each phase begins where the previous one ends.

    `before` are the bytes from before training, which are subtracted.
    """
    ends = [index for _, index in step.phases[1:]] + [len(step.curve) - 1]
    parts: dict[Phase, list[float | None]] = {}
    for (phase, begin), end in zip(step.phases, ends):
        if phase in PHASE_ROLES:
            values = parts.setdefault(phase, [None] * len(step.curve))
            values[begin : end + 1] = (float(max(0, total - before)) for total in step.curve[begin : end + 1])
    xs = tuple(index * step.changes / len(step.curve) for index in range(len(step.curve)))
    series = tuple(Series(phase.value, PHASE_ROLES[phase], xs, tuple(values)) for phase, values in parts.items())
    return PlotRequest(width, height, series, unit="bytes", x_label="change", y_label="memory")


def _path(state: RunState, module: int) -> str:
    info = state.tree.modules[module]
    return printable(info.path or info.name)


def _holdings(state: RunState, step: StepMemoryProfiled, before: int, width: int) -> list[Line]:
    """Return each kind with its sum, and the modules that hold most of it, without the bytes from before training."""
    by_kind: dict[str, list[Holding]] = {}
    for holding in step.holdings:
        by_kind.setdefault(holding.kind, []).append(holding)
    totals = {kind: sum(holding.bytes for holding in held) for kind, held in by_kind.items()}
    if "other" in totals:
        totals["other"] -= before
    peak = step.peak - before
    lines: list[Line] = []
    for kind in sorted(totals, key=lambda kind: -totals[kind]):
        if totals[kind]:
            lines.append(_kind_line(kind, totals[kind], sum(holding.tensors for holding in by_kind[kind]), peak))
            largest = [holding for holding in by_kind[kind] if holding.module >= 0][:_MAX_OWNERS]
            lines += [_owner_line(state, holding, width) for holding in largest]
    return lines


def _kind_line(kind: str, total: int, tensors: int, peak: int) -> Line:
    count = plural(tensors, "tensor")
    words = "no known tensor" if kind == "other" else count
    return (
        (bytes_text(total), "strong"),
        (share_text(total / peak if peak else 0.0).rjust(_SHARE_WIDTH), "muted"),
        (f"  {pad(_KIND_NAMES.get(kind, kind), _KIND_WIDTH)}", kind),
        (words, "faint"),
    )


def _owner_line(state: RunState, holding: Holding, width: int) -> Line:
    indent = " " * (_SHARE_WIDTH + 2)
    room = max(8, width - len(indent) - _BYTES_WIDTH - 2)
    return (
        (indent, ""),
        (bytes_text(holding.bytes), "muted"),
        ("  " + elide_start(_path(state, holding.module), room), "muted"),
    )
