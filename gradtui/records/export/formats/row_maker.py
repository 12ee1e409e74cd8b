"""Make the rows of the tables from the events of one process, which are applied to a `RunState` of bounded size."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, Phase
from gradtui.records.export.formats import tables
from gradtui.records.export.formats.group_settings import GroupHistory
from gradtui.records.export.formats.tables import Row, Rows, Table
from gradtui.run.state.optimizers.optimizer_names import optimizer_name
from gradtui.run.state.parts.bounds import bound_of_peak
from gradtui.run.state.run_state import RunState

_SPREAD_S = 1.0
"""The longest time over which the memory totals of steps that are reported together are spread."""
_MAX_WAITING = 8192
"""Rows of `steps` that wait for further figures and the duration of their step: what comes every 200 ms says it."""
_SPANS = 64
_MAX_LAG_S = 5.0
"""A report is made at most so long after the phases in it have ended: gradtui's own work after a sampled step comes between."""


class RowMaker:
    """Makes the rows of one event after another. Its state is what later rows need of earlier events."""

    def __init__(self, state: RunState, *, has_norms: bool) -> None:
        self._state = state
        self._has_norms = has_norms
        """Whether the norms of parameters are wanted: most rows are theirs."""
        self._logged = 0
        """Entries of the log that are rows already."""
        self._waiting: dict[tuple[int, int], Row] = {}
        """Rows of `steps` whose duration is not known yet."""
        self._series: dict[int, str | None] = {}
        """By identity of the curves that the state keeps of an optimizer, or else its index: the name of its series."""
        self._spans: deque[tuple[int, int, float]] = deque(maxlen=_SPANS)
        """The newest reported steps: first, last, mean duration."""
        self._unended_s = 0.0
        self._phases_end_s: float | None = None
        """When the phases of the newest report ended. All phases follow each other without gaps, except for pauses."""
        self._norm_steps: dict[int, int] = {}
        """By parameter: the step of its newest norm that is a row."""
        self._groups = GroupHistory()
        self._waiting_groups: dict[int, float] = {}
        """By step: the time of the rows of `groups` that wait, because a change may be read some steps later."""
        self._memory_at_s: float | None = None
        """When the newest memory totals were reported."""
        self._paused: ev.PauseChanged | None = None
        self._makers: dict[type[ev.Event], Callable[[Any], Rows]] = {
            ev.TorchImported: self._torch_imported,
            ev.ModelsFound: self._models_found,
            ev.GradientsMeasured: self._gradients,
            ev.StepsMeasured: self._steps,
            ev.StepMemoryMeasured: self._step_memory,
            ev.MetricsLogged: self._metrics,
            ev.GradientFiguresMeasured: self._figures,
            ev.SavedBytesMeasured: self._saved_bytes,
            ev.MemoryMeasured: self._memory,
            ev.DeviceSampled: self._machine,
            ev.DeviceTimesMeasured: self._device_times,
            ev.GroupsRead: self._groups_read,
            ev.Progress: self._progress,
            ev.PauseChanged: self._pause,
        }

    def rows_of(self, event: ev.Event) -> Rows:
        """Yield the rows of an event that has been applied to the state."""
        make = self._makers.get(type(event))
        is_of_another_listing = event.listing not in (None, self._state.tree.listing)
        if make is not None and not is_of_another_listing:
            yield from make(event)
        new = self._state.log_count - self._logged
        self._logged = self._state.log_count
        for entry in self._state.log[-new:] if new else ():
            yield (
                tables.EVENTS,
                {"step": entry.step, "time_s": entry.at, "kind": entry.kind, "text": entry.text},
            )

    def waiting_rows(self) -> Rows:
        """Yield the rows for which no further event comes."""
        yield from self._complete_steps(until=None)
        if self._paused is not None:
            yield self._pause_row(self._paused, None)

    def _torch_imported(self, event: ev.TorchImported) -> Rows:
        self._phases_end_s = event.at
        yield from ()

    def _models_found(self, _event: ev.ModelsFound) -> Rows:
        self._norm_steps.clear()
        yield from ()

    def _gradients(self, event: ev.GradientsMeasured) -> Rows:
        if event.loss is not None or event.total is not None:
            yield from self._step(
            event.at,
            ev.StepFigures(
                event.step, event.optimizer, event.loss, event.loss_of, event.total, event.before_clipping,
                event.clipped_at, event.as_applied,
            ),
        )  # fmt: skip
        if self._has_norms:
            yield from self._norms(event)

    def _steps(self, event: ev.StepsMeasured) -> Rows:
        for losses in event.losses:
            for step, loss in zip(losses.steps, losses.losses):
                yield from self._step(event.at, ev.StepFigures(step, losses.optimizer, loss))
        for figures in event.figures:
            yield from self._step(event.at, figures)

    def _step(self, at: float, figures: ev.StepFigures) -> Rows:
        self._waiting_groups.setdefault(figures.step, at)
        row: Row = {
            "step": figures.step,
            "time_s": at,
            "optimizer": figures.optimizer if figures.optimizer >= 0 else None,
            "optimizer_name": self._series_of(figures.optimizer),
            "loss": figures.loss,
            "loss_of_backwards": figures.loss_of or None,
            "gradient_norm": figures.total,
            "gradient_norm_before_clipping": figures.before_clipping,
            "clip_max_norm": figures.clipped_at,
            "gradients_are_as_applied": figures.as_applied,
            "learning_rate": None,
            "step_time_s": None,
        }
        waiting = self._waiting.setdefault((figures.step, figures.optimizer), row)
        if waiting is not row:
            # The loss of the step came first.
            waiting.update({name: value for name, value in row.items() if value is not None})
        if len(self._waiting) > _MAX_WAITING:
            yield from self._complete_steps(until=sorted(self._waiting)[_MAX_WAITING // 2][0])

    def _series_of(self, optimizer: int) -> str | None:
        """Return the name of the series of an optimizer's steps; None for the first one where no other one was known then.

        It stays: names change when further optimizers or models are found.
        """
        state = self._state
        curves = state.of_optimizers.get(state.curves_of.get(optimizer, optimizer))
        key = id(curves) if curves is not None else optimizer
        if key not in self._series:
            is_alone = not self._series and (optimizer < 0 or len(state.optimizers) < 2)
            self._series[key] = None if is_alone else optimizer_name(state, optimizer)
        return self._series[key]

    def _step_memory(self, event: ev.StepMemoryMeasured) -> Rows:
        # Steps that are reported together are spread evenly over the time since the report before, which is 0.2 s unless the
        # run was paused.
        before = event.at if self._memory_at_s is None else max(self._memory_at_s, event.at - _SPREAD_S)
        self._memory_at_s, each_s = event.at, (event.at - before) / len(event.totals)
        for number, totals in enumerate(event.totals, 1):
            at = event.at if number == len(event.totals) else before + number * each_s
            row: Row = {"step": totals.step, "time_s": at}
            row |= _bound_of(totals.peak, is_exact=totals.peak_exact, devices=totals.devices)
            row |= {f"{name}_bytes": getattr(totals, name) for name in ("forward", "backward", "optimizer", "peak")}
            yield tables.STEP_MEMORY, row

    def _metrics(self, event: ev.MetricsLogged) -> Rows:
        for points in event.points:
            metric = self._state.metrics.by_name.get(points.name)
            # What a second logger logs under the same name is the same once more.
            if metric is None or metric.source != points.source:
                continue
            for step, value in zip(points.steps, points.values):
                row: Row = {"step": step, "time_s": event.at, "metric": points.name}
                row |= {"metric_value": value, "metric_of": metric.side or None, "metric_source": points.source}
                yield tables.METRICS, row

    def _complete_steps(self, until: int | None) -> Rows:
        """Yield the rows of `steps` and `groups` up to a step, or all, with what later events have said of them."""
        for step in sorted(step for step in self._waiting_groups if until is None or step <= until):
            yield from self._rows_of_groups(step, self._waiting_groups.pop(step))
        for key in sorted(key for key in self._waiting if until is None or key[0] <= until):
            row = self._waiting.pop(key)
            groups, optimizer = self._groups.at(key[0]), key[1]
            own = groups[optimizer : optimizer + 1] if optimizer >= 0 else groups
            rates = {group.learning_rate for settings in own for group in settings}
            row["learning_rate"] = rates.pop() if len(rates) == 1 else None
            row["step_time_s"] = next(
                (mean for first, last, mean in reversed(self._spans) if first <= key[0] <= last), None
            )
            yield tables.STEPS, row
        if until is not None:
            self._groups.forget_before(until)

    def _norms(self, event: ev.GradientsMeasured) -> Rows:
        parameters = self._state.tree.parameters
        if event.norms is None or len(event.norms) != len(parameters):
            return
        steps = event.norm_steps or (event.step,) * len(event.norms)
        for index, (norm, step) in enumerate(zip(event.norms, steps)):
            if norm is not None and step is not None and self._norm_steps.get(index) != step:
                self._norm_steps[index] = step
                yield tables.GRADIENT_NORMS, {**self._place(step, event.at, index), "gradient_norm": norm}

    def _place(self, step: int, at: float, parameter: int) -> Row:
        info = self._state.tree.parameters[parameter]
        return {"step": step, "time_s": at, "module": self._module(info.module), "parameter": info.path}

    def _module(self, index: int) -> str | None:
        modules = self._state.tree.modules
        return modules[index].path if 0 <= index < len(modules) else None

    def _figures(self, event: ev.GradientFiguresMeasured) -> Rows:
        for each in event.figures:
            if 0 <= each.parameter < len(self._state.tree.parameters):
                row = self._place(event.step, event.at, each.parameter)
                names = ("max_abs", "mean", "std", "zero_fraction", "not_finite", "weight_norm", "update_ratio")
                row |= {name: getattr(each, name) for name in names}
                yield tables.GRADIENTS, row | {"update_ratio_is_exact": each.ratio_is_exact}

    def _saved_bytes(self, event: ev.SavedBytesMeasured) -> Rows:
        if len(event.by_module) != len(self._state.tree.modules):
            return
        again = event.recomputed or (0,) * len(event.by_module)
        for index, (saved, recomputed) in enumerate(zip(event.by_module, again)):
            if saved or recomputed != 0:
                yield (
                    tables.ACTIVATIONS,
                    {
                        "step": event.step,
                        "time_s": event.at,
                        "module": self._module(index),
                        "saved_bytes": saved,
                        "recomputed_bytes": recomputed,
                    },
                )

    def _memory(self, event: ev.MemoryMeasured) -> Rows:
        held = asdict(event.held)
        yield (
            tables.MEMORY,
            {
                "step": event.step,
                "time_s": event.at,
                "phase": event.phase.value,
                **{f"{category}_bytes": held[category] for category in MEMORY_CATEGORIES},
                "total_bytes": event.held.total,
                "peak_bytes": event.peak,
                **_bound_of(event.peak, is_exact=event.peak_exact, devices=event.devices),
                "is_exact": event.exact,
                "offloaded_is_outside_total": event.held.offload_outside,
            },
        )

    def _machine(self, event: ev.DeviceSampled) -> Rows:
        devices: tuple[ev.DeviceSampled | ev.DeviceFigures, ...] = (event, *event.others)
        for device in devices:
            row: Row = {"step": event.step, "time_s": event.at, "device": device.index}
            row["utilisation_fraction"] = device.utilisation
            for name in tables.MACHINE.columns:
                if name.endswith("_bytes"):
                    # Only the first row has the figures of the host.
                    row[name] = getattr(device, name.removesuffix("_bytes"), None)
            yield tables.MACHINE, row

    def _device_times(self, event: ev.DeviceTimesMeasured) -> Rows:
        row: Row = {"step": event.step, "time_s": event.at, **_seconds(dict(event.phases))}
        yield tables.DEVICE_TIMES, row | {"overhead_s": event.own}

    def _groups_read(self, event: ev.GroupsRead) -> Rows:
        self._groups.take(event)
        self._waiting_groups[event.step] = event.at
        yield from ()

    def _rows_of_groups(self, step: int, at: float) -> Rows:
        """Yield the settings of all groups at a step: where the gradients are measured, and where the settings change."""
        for index, settings in enumerate(self._groups.at(step)):
            known = self._state.optimizers[index : index + 1]
            for number, group in enumerate(settings):
                yield (
                    tables.GROUPS,
                    {
                        "step": step,
                        "time_s": at,
                        "optimizer": index,
                        "optimizer_type": known[0].type_name if known else None,
                        "group": number,
                        "learning_rate": group.learning_rate,
                        "weight_decay": group.weight_decay,
                    },
                )

    def _progress(self, event: ev.Progress) -> Rows:
        seconds = {each.phase: each.seconds for each in event.phases}
        self._unended_s += sum(spent for phase, spent in seconds.items() if phase is not Phase.LOAD)
        mean = self._unended_s / event.steps if event.steps > 0 else None
        before = self._spans[-1][1] if self._spans else 0
        if mean is not None:
            self._unended_s = 0.0
            self._spans.append((event.step - event.steps + 1, event.step, mean))
        began, ended = self._interval(event.at, math.fsum(seconds.values()))
        yield (
            tables.TIMES,
            {
                "step": event.step,
                "time_s": event.at,
                "steps": event.steps,
                "micro_steps": event.micro_steps,
                "skipped_steps": event.skipped_steps,
                "began_s": began,
                "ended_s": ended,
                "step_time_s": mean,
                **_seconds(seconds),
                "overhead_s": event.own_seconds,
            },
        )
        # Norms that a device had not computed yet come until the report after that on their steps.
        yield from self._complete_steps(until=before)

    def _interval(self, at: float, total: float) -> tuple[float, float]:
        """Return when the phases of a report that was made at `at` began and ended. Together they last `total`."""
        began = self._phases_end_s
        if began is None or at - (began + total) > _MAX_LAG_S:
            began = max(at - total, began or 0.0)
        ended = max(began, min(began + total, at))
        self._phases_end_s = ended
        return began, ended

    def _pause(self, event: ev.PauseChanged) -> Rows:
        if self._paused is not None:
            seconds = event.at - self._paused.at
            yield self._pause_row(self._paused, seconds)
            if self._phases_end_s is not None:
                self._phases_end_s += seconds
        self._paused = event if event.paused else None

    @staticmethod
    def _pause_row(began: ev.PauseChanged, seconds: float | None) -> tuple[Table, Row]:
        reason = began.reason or None
        return tables.PAUSES, {"step": began.step, "time_s": began.at, "duration_s": seconds, "reason": reason}


def _bound_of(peak: int | None, *, is_exact: bool, devices: Sequence[object]) -> Row:
    bound = bound_of_peak(is_exact=is_exact, devices=devices) if peak is not None else None
    return {"peak_bound": bound, "peak_is_exact": None if bound is None else bound == "exact"}


def _seconds(by_phase: Mapping[Phase, float]) -> Row:
    return {f"{phase}_s": by_phase.get(phase) for phase in Phase}
