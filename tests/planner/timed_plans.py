"""Forecasts of the seconds of a step beside what models take that are written as the plan says."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import thread_time, thread_time_ns

import torch
from helpers.watched import watched
from patterns import patterns
from torch import nn
from torch.utils.checkpoint import checkpoint
from zoo import Specimen

from gradtui.planner import Forecaster
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.forecasts import Change, TimeForecast
from gradtui.run.state.forecasts.forecast import forecast_change, question

STEPS, ROUNDS = 80, 40


@dataclass(frozen=True)
class Plan:
    """What trains, by index, and which children of the model are checkpointed, by name."""

    name: str
    trains: frozenset[int]
    checkpointed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timed:
    """A plan with its forecast, and what a step takes without and with it, in seconds."""

    plan: str
    now: float
    forecast: TimeForecast
    measured: float

    @property
    def predicted(self) -> float:
        """The forecast, as long as the machine is as fast as it was when the step without the plan was measured."""
        return self.now * self.forecast.seconds / self.forecast.now

    @property
    def error(self) -> float:
        """The forecast divided by what was measured, minus 1."""
        return self.predicted / self.measured - 1

    @property
    def is_within_margin(self) -> bool:
        """Whether the measured duration is in the interval of the forecast."""
        return abs(self.predicted - self.measured) <= self.margin

    @property
    def margin(self) -> float:
        """That of the forecast, in seconds of the same machine."""
        return self.now * self.forecast.margin / self.forecast.now


@contextmanager
def time_of_the_processor() -> Iterator[None]:
    """Let gradtui measure the time of the processor, which is that of a quiet machine, whatever else runs on this one."""
    patched = []
    for name, module in [*sys.modules.items()]:
        if name.startswith("gradtui.probe") and hasattr(module, "perf_counter_ns"):
            patched.append((module, module.perf_counter_ns))
            module.perf_counter_ns = thread_time_ns  # type: ignore[attr-defined]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for module, former in patched:
            module.perf_counter_ns = former  # type: ignore[attr-defined]


def plans_of(model: nn.Module) -> list[Plan]:
    """Plans for a model: choices of what trains, and its children checkpointed."""
    everything = frozenset(index for index, each in enumerate(model.parameters()) if each.requires_grad)
    found = [Plan(name, trains) for name, trains in patterns(model).items() if trains and trains != everything]
    children = [name for name, each in model.named_children() if len([*each.parameters()]) and _is_called(each)]
    if children:
        found.append(Plan("all children checkpointed", everything, tuple(children)))
        found.append(Plan("first child checkpointed", everything, (children[0],)))
    return found


def _is_called(module: nn.Module) -> bool:
    return not isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict))


def timed_plans(make: Callable[[], Specimen], rounds: int = ROUNDS) -> list[Timed]:
    """Return the forecasts of a specimen's plans beside the measured durations. Plans that train nothing are left out."""
    with time_of_the_processor():
        plans = plans_of(make().model)
        forecasts = _forecasts(make(), plans)
        steps = [_step_of(make(), plan) for plan in (None, *plans)]
        # The models take turns: what slows the machine for some seconds slows all of them.
        turns = [[_seconds(step) for step in steps] for _ in range(rounds)]
        now, *measured = (statistics.median(times) for times in zip(*turns))
        return [
            Timed(plan.name, now, made, seconds)
            for plan, made, seconds in zip(plans, forecasts, measured)
            if made is not None and seconds
        ]


def _forecasts(specimen: Specimen, plans: list[Plan]) -> list[TimeForecast | None]:
    model = specimen.model
    optimizer = torch.optim.AdamW([each for each in model.parameters() if not each.is_sparse], 1e-4)
    # Without a budget, sixteen steps are sampled: the others are as they are without gradtui, but for its hooks.
    with watched(budget=0.0) as seen:
        for step in range(STEPS):
            if step == STEPS - 1:
                seen.commands.submit(lambda number: TraceStep(number))
            optimizer.zero_grad()
            specimen.loss(model(*specimen.batch(step))).backward()
            optimizer.step()
    state, forecaster = seen.state, Forecaster()
    flags = state.tree.trainable
    paths = {module.path: index for index, module in enumerate(state.tree.modules)}
    # The listing counts a tied parameter once, as `parameters()` does, in the same order.
    found = []
    for plan in plans:
        change = Change(
            tuple(index for index, flag in enumerate(flags) if flag == "1" and index not in plan.trains),
            tuple(index for index, flag in enumerate(flags) if flag == "0" and index in plan.trains),
            frozenset(paths[name] for name in plan.checkpointed),
        )
        asked = question(state, forecast_change(state, change))
        found.append(forecaster.answer(asked).time if asked is not None else None)
    return found


def _step_of(specimen: Specimen, plan: Plan | None) -> Callable[[], object] | None:
    """Return what makes a step of a model that is written as the plan says; None if nothing of it trains."""
    model = specimen.model
    for index, parameter in enumerate(model.parameters() if plan is not None else ()):
        parameter.requires_grad_(plan is not None and index in plan.trains)
    for name in plan.checkpointed if plan is not None else ():
        child = model.get_submodule(name)
        child.forward = partial(checkpoint, child.forward, use_reentrant=False)  # type: ignore[method-assign]
    batch = specimen.batch(0)
    if not specimen.loss(model(*batch)).requires_grad:
        return None
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        specimen.loss(model(*batch)).backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], object] | None) -> float:
    began = thread_time()
    if step is not None:
        step()
    return thread_time() - began if step is not None else 0.0


def lines(name: str, timed: list[Timed]) -> Iterator[str]:
    """Yield a table: plan, the step as it was, forecast and measured duration, error, and whether it is outside the margin."""
    for each in timed:
        yield (
            f"{name:28} {each.plan:26} {each.now * 1e3:8.3f} ms  forecast {each.predicted * 1e3:8.3f} ± "
            f"{each.margin * 1e3:.3f}  measured {each.measured * 1e3:8.3f}  {each.error:+6.1%}"
            f"{'' if each.is_within_margin else '  outside'}"
        )
