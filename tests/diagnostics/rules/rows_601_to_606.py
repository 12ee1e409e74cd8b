"""Rows of the rules of ranks, whose states a viewer of simulated ranks has: GT601 to GT606."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from helpers.jobs import PATHS, Job, model
from helpers.rule_rows import Row, Table, quiet, reports
from helpers.scripted_runs import run

from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

Values = Mapping[str, Any]
ONE_PROCESS, NOTHING_COMPARED = "the run is one process", "no step was compared between ranks"


def compared(ranks: int, *steps: tuple[int, Mapping[int, Values]]) -> RunState:
    """A job whose ranks were compared at these steps; at each, the values of some ranks differ from the others'."""
    job = Job(ranks)
    for step, others in steps:
        for rank in range(ranks):
            job.check(rank, step, **others.get(rank, {}))
    return job.state


def equal_ranks() -> RunState:
    """Two ranks without a difference, which end after the same step."""
    job = Job(2)
    for step in (1, 16):
        job.check_all(step)
    for rank in range(2):
        job.end(rank, 20)
    return job.state


def joined(*paths: str, values: Values | None = None) -> RunState:
    """Two ranks, the second of which has a model with these parameters; in a pipeline with `values` of its own."""
    job = Job(2, joined=())
    job.join(0)
    job.join(1, model(*paths))
    job.check(0, 1, **({} if values is None else {"checksums": (None, None)}))
    job.check(1, 1, **(values or {}))
    return job.state


def ended(steps: Mapping[int, int], *, codes: Mapping[int, int] | None = None, now: int = 90) -> RunState:
    """Three ranks of which some have ended after so many steps, by exit code 0 or another one. The last is at `now`."""
    job = Job(3)
    for rank in range(3):
        job.progress(rank, 90)
    if now > 90:
        job.progress(2, now)
    for rank, step in steps.items():
        job.end(rank, step, (codes or {}).get(rank, 0))
    return job.state


def checked() -> tuple[Row, ...]:
    """The rows that all rules of ranks have: nothing to compare, and nothing that differs."""
    return (
        quiet("one process", run, lacked=ONE_PROCESS),
        quiet("a job of one rank", lambda: Job(1).state, lacked=ONE_PROCESS),
        quiet("no comparison yet", lambda: Job(2).state, lacked=NOTHING_COMPARED),
        quiet("no run yet", RunState, lacked=ONE_PROCESS),
        quiet("equal ranks", equal_ranks, lacked=""),
    )


FROZEN, WITHOUT, OTHER = {"trainable": "10"}, {"owned": "10"}, {"checksums": (0, 0)}

ROWS: Table = {
    "GT601": (
        reports(
            "frozen on one rank", lambda: compared(3, (16, {}), (32, {1: FROZEN})),
            paths=("a.bias",), first_step=32, is_exact=True, level=None,
            evidence={
                "names": 1, "ranks": "1", "compared_ranks": 3, "equal_step": 16, "first_step": 32, "last_step": 32,
            },
        ),
        reports(
            "models of their own",
            lambda: compared(2, (16, {0: {"checksums": (None, None)}, 1: {**FROZEN, "checksums": (None, None)}})),
            level=Level.NOTE,
        ),
        quiet("equal again", lambda: compared(2, (16, {1: FROZEN}), (32, {}))),
        *checked(),
    ),
    "GT602": (
        reports(
            "in no optimizer on one rank", lambda: compared(2, (1, {1: WITHOUT})),
            paths=("a.bias",), first_step=1, explains=None,
        ),
        reports(
            "values differed before", lambda: compared(2, (16, {1: OTHER}), (32, {1: {**OTHER, **WITHOUT}})),
            explains=frozenset({"GT603"}),
        ),
        reports("values differ since then", lambda: compared(2, (16, {}), (32, {1: {**OTHER, **WITHOUT}})), explains=None),
        *checked(),
    ),
    "GT603": (
        reports(
            "another rate on one rank",
            lambda: compared(2, (16, {}), (32, {0: {"rates": ((0.1, 0.5),)}, 1: {"rates": ((0.1, 0.05),)}})),
            # It concerns all parameters.
            paths=(), first_step=32,
        ),
        quiet("an unknown rate", lambda: compared(2, (16, {1: {"rates": ((math.nan,),)}}))),
        *checked(),
    ),
    "GT604": (
        reports(
            "one of four ranks", lambda: compared(4, (16, {}), (32, {3: {"checksums": (320, 0)}})),
            paths=("a.bias",), first_step=32, numbers={"ranks": "3"},
        ),
        # As where gradients are not averaged.
        reports(
            "all ranks", lambda: compared(3, (1, {rank: {"checksums": (rank, rank)} for rank in range(3)})), paths=PATHS
        ),
        quiet(
            "outside of the wrapper",
            lambda: compared(2, (16, {0: {"checksums": (7, 3)}, 1: {"checksums": (7, None)}})),
        ),
        *checked(),
    ),
    "GT605": (
        reports("other parameters", lambda: joined("a.weight", "a.scale"), key="models", level=None),
        # As the stages of a pipeline.
        reports(
            "ranks that share nothing",
            lambda: joined("a.scale", values={"trainable": "1", "owned": "1", "checksums": (None,)}), level=Level.NOTE,
        ),
        reports(
            "ended after fewer steps", lambda: ended({1: 90}, now=91),
            key="steps", first_step=90, evidence={"ranks": "1", "steps": 90, "most_steps": 91},
        ),
        reports(
            "two ended after fewer steps", lambda: ended({1: 90, 0: 95, 2: 100}, now=91),
            evidence={"ranks": "0 1", "steps": 90, "most_steps": 100},
        ),
        # The others may end there too.
        quiet("ended first", lambda: ended({1: 90})),
        quiet("a rank that fails", lambda: ended({1: 50, 0: 90}, codes={1: 1})),
        *checked(),
    ),
    "GT606": (
        reports(
            "other buffers", lambda: compared(2, (16, {0: {"buffers": (0,)}, 1: {"buffers": (1,)}})),
            paths=("a.mean",), first_step=16, level=None,
        ),
        *checked(),
    ),
}  # fmt: skip
