"""Rows of the rules of trainings that are continued: GT801 to GT804."""

from __future__ import annotations

from dataclasses import replace

from helpers.rule_rows import Table, quiet, reports
from helpers.scripted_runs import run, then

from gradtui.protocol.events import GroupsRefused, NewOptimizerState, RunResumed
from gradtui.protocol.resume import NewSchedule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

FILE = "/data/run/last.pt"
BLOCK = tuple(f"blocks.7.{part}.{name}" for part in ("norm", "attn", "mlp") for name in ("weight", "bias"))
RESTORED = RunResumed(
    1.0, 0, optimizer=0, files=(FILE,), digests=("d",), saved_step=20, is_restored=True, same_script=False, weights="w",
    tensors=6, learning_rates=(1e-3,), new_state=None, schedules=(), schedule_goes_on=False, random_file=FILE,
    random_draws=0, site=None,
)  # fmt: skip
"""A training that continues with all that was saved."""
FORGOTTEN = NewOptimizerState(6, 6, 6, 20, FILE, "unused", ("a.weight", "a.bias"))
"""State of an optimizer that no optimizer was given."""
AGAIN = NewSchedule("StepLR", 20, True, FILE, 0.01, 0.1)
"""A scheduler that was saved after 20 steps, and begins at 0."""
REFUSED = GroupsRefused(1.0, 0, 0, "AdamW", 1, 7, 1, True, BLOCK, 6, (), 0, (), FILE, 512, None)
"""Group 1 has seven parameters and had one when it was saved, without a block."""


def resumed(**changes: object) -> RunState:
    """A run that continues a training, in which all is restored but for the changes."""
    return then(run(), replace(RESTORED, **changes))  # type: ignore[arg-type]  # the caller names fields


def refused(**changes: object) -> RunState:
    """A run in which torch has refused the saved state of an optimizer."""
    return then(run(), replace(REFUSED, **changes))  # type: ignore[arg-type]


ROWS: Table = {
    "GT801": (
        reports(
            "no optimizer was given it", lambda: resumed(new_state=FORGOTTEN),
            level=None, paths=("a.weight", "a.bias"), first_step=0, optimizer=0,
            evidence={
                "new_tensors": 6, "trainable_tensors": 6, "saved_tensors": 6, "saved_updates": 20, "saved_step": 20,
                "how": "unused",
            },
        ),
        *(
            reports(
                f"the run continues, for it has {words}",
                lambda field=field, value=value: resumed(
                    new_state=FORGOTTEN, **{"is_restored": False, "random_draws": None, field: value}
                ),
                level=None,
            )
            for words, field, value in (
                ("the same script", "same_script", True), ("the schedule", "schedule_goes_on", True),
                ("the random numbers", "random_draws", 5),
            )
        ),
        reports(
            "a new training from saved weights",
            lambda: resumed(new_state=FORGOTTEN, is_restored=False, random_draws=None), level=Level.NOTE,
        ),
        reports(
            "another optimizer was given it", lambda: resumed(new_state=replace(FORGOTTEN, how="other")),
            level=None, numbers={"how": "other"},
        ),
        reports(
            "frozen when it was saved", lambda: resumed(new_state=replace(FORGOTTEN, how="frozen", tensors=2)),
            level=Level.NOTE, numbers={"new_tensors": 2, "how": "frozen"},
        ),
        quiet("all is restored", resumed, lacked=""),
        quiet("nothing was loaded", run, lacked="no checkpoint was loaded"),
    ),
    "GT802": (
        reports(
            "an unfrozen block", refused,
            paths=BLOCK, first_step=0, key="0 0",
            evidence={
                "group": 1, "own": 7, "saved": 1, "only_own": 6, "only_saved": 0, "names_known": True, "saved_step": 512,
            },
        ),
        reports(
            "another block in its place",
            lambda: refused(own=1, saved=6, only_own=("head.bias",), only_own_count=1, only_saved=BLOCK, only_saved_count=6),
            paths=("head.bias", *BLOCK),
        ),
        reports(
            "a block that is frozen now",
            lambda: refused(own=1, saved=7, only_own=(), only_own_count=0, only_saved=BLOCK, only_saved_count=6), paths=BLOCK,
        ),
        reports(
            "other groups",
            lambda: refused(group=-1, own=1, saved=2, only_own=(), only_own_count=0, moved=BLOCK[:2]), paths=(),
        ),
        reports("a state without names", lambda: refused(own=6, names_known=False), paths=(), remedy=None),
        quiet("all is restored", resumed),
    ),
    "GT803": (
        reports(
            "it was saved", lambda: resumed(schedules=(AGAIN,)),
            level=None, first_step=0, key="0 0", optimizer=0,
            evidence={"last_epoch": 20, "was_saved": True, "saved_rate": 0.01, "rate": 0.1},
        ),
        reports(
            "it was not saved", lambda: resumed(schedules=(replace(AGAIN, was_saved=False),)),
            level=Level.NOTE, numbers={"was_saved": False},
        ),
        quiet(
            "a new training from saved weights",
            lambda: resumed(schedules=(AGAIN,), is_restored=False, random_draws=None),
        ),
        quiet("all is restored", resumed, lacked=""),
        quiet("nothing was loaded", run, lacked="no checkpoint was loaded"),
    ),
    "GT804": (
        reports(
            "the generator of torch", lambda: resumed(random_draws=None),
            level=None, first_step=0, evidence={"saved_step": 20, "generators": "torch"},
        ),
        reports(
            "the generator of NumPy", lambda: resumed(generators_lost=("NumPy",), generators_file="/data/run/rng.pkl"),
            numbers={"generators": "NumPy"},
        ),
        reports(
            "both", lambda: resumed(random_draws=None, generators_lost=("NumPy",), generators_file="/data/run/rng.pkl"),
            numbers={"generators": "torch, NumPy"},
        ),
        quiet("a new training from saved weights", lambda: resumed(random_draws=None, is_restored=False)),
        quiet("no file has the state of a generator", lambda: resumed(random_draws=None, random_file=None)),
        quiet("all is restored", resumed, lacked=""),
        quiet("nothing was loaded", run, lacked="no checkpoint was loaded"),
    ),
}  # fmt: skip
