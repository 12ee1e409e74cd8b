"""GT803: the run continues from a saved training, and a scheduler begins again at 0."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.resumed import is_resumed, needs_loaded
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.resume import file_name


def check(state: RunState) -> Iterator[Match]:
    """Match schedulers that stood elsewhere when the training was saved."""
    for each in filter(is_resumed, state.resume.resumed.values()):
        for number, schedule in enumerate(each.schedules):
            file = file_name(schedule.file)
            where = (
                f"{file} has it at {schedule.last_epoch:,}"
                if schedule.was_saved
                else (f"it stood at {schedule.last_epoch:,} when {file} was saved, which does not have it")
            )
            rates = schedule.saved_rate, schedule.rate
            moved = (
                f"; the learning rate was {rates[0]:g}, and is {rates[1]:g}"
                if None not in rates and rates[0] != rates[1]
                else ""
            )
            yield Match(
                f"{schedule.type_name} begins again at 0: {where}{moved}",
                {
                    "last_epoch": schedule.last_epoch, "was_saved": schedule.was_saved, "saved_rate": rates[0],
                    "rate": rates[1],
                },
                (),
                each.step,
                is_exact=True,
                level=None if schedule.was_saved else Level.NOTE,
                remedy=None if schedule.was_saved else _SAVE,
                site=each.site,
                key=f"{each.optimizer} {number}",
                optimizer=each.optimizer,
            )  # fmt: skip


_SAVE = "save scheduler.state_dict() with the optimizer's, and load both"

RULE = Rule(
    "GT803",
    Level.WARNING,
    "a schedule begins again",
    "the learning rate warms up, or is as high as at the beginning, although the training is far beyond that",
    'call scheduler.load_state_dict(checkpoint["scheduler"]) before the first step',
    check,
    needs=needs_loaded,
)
