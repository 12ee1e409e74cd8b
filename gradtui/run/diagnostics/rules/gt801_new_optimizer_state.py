"""GT801: the run continues from saved weights, and the state of its optimizer begins anew although it was saved."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import NewOptimizerState, RunResumed
from gradtui.run.diagnostics.resumed import is_resumed, needs_loaded
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.resume import file_name, modules_of
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match optimizers that have begun with other state than was loaded."""
    for each in state.resume.resumed.values():
        new = each.new_state
        if new is None:
            continue
        message, remedy, level = _words(state, each, new)
        yield Match(
            message,
            {
                "new_tensors": new.tensors, "trainable_tensors": new.of_tensors, "saved_tensors": new.saved_tensors,
                "saved_updates": new.updates, "saved_step": each.saved_step, "how": new.how,
            },
            new.paths,
            each.step,
            is_exact=True,
            level=level,
            remedy=remedy,
            site=each.site,
            key=str(each.optimizer),
            optimizer=each.optimizer,
        )  # fmt: skip


def _words(state: RunState, resumed: RunResumed, new: NewOptimizerState) -> tuple[str, str | None, Level | None]:
    name, file = optimizer_name(state, resumed.optimizer), file_name(new.file)
    if new.how == "frozen":
        which = modules_of(new.paths, new.tensors)
        was, now = ("was", "is") if new.tensors == 1 else ("were", "are")
        return (
            f"the optimizer state of {plural(new.tensors, 'tensor')} is new: {which} {was} frozen when {file} was saved, and "
            f"{now} trained now",
            "nothing, if you have unfrozen it on purpose; else freeze it as in the saved run",
            Level.NOTE,
        )
    made = f" after {plural(new.updates, 'step')}" if new.updates is not None else ""
    what = (
        f"the optimizer state of {plural(new.tensors, 'tensor')} is new: {file} has that of {new.saved_tensors:,}{made}"
    )
    if new.how == "other":
        return f"{what}, and it was loaded into another optimizer than the {name} that steps", _OTHER, None
    return f"{what}, and no optimizer was given it", None, None if is_resumed(resumed) else Level.NOTE


_OTHER = "make the optimizer once, before load_state_dict(), or load its state again after it was made anew"

RULE = Rule(
    "GT801",
    Level.WARNING,
    "the optimizer's state was not restored",
    "the moments begin at zero: in its first steps Adam moves every weight by about the learning rate, whatever the size of "
    "the gradient, and the loss jumps",
    'call optimizer.load_state_dict(checkpoint["optimizer"]) before the first step',
    check,
    needs=needs_loaded,
)
