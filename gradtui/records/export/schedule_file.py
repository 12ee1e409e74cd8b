"""Write the changes made to a run as a schedule file and as Python that applies it, and read it for a replay. Any thread.

The format is TOML, where strings have quotes: in YAML `*.bias` is a reference, `:head` a key and `on` a boolean.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import Command, KeepState, ReturnToState, TryChange
from gradtui.protocol.events import CommandApplied, StateKept
from gradtui.protocol.foreign_text import from_toml
from gradtui.protocol.schedule import VERSION, Scheduled, read, to_table
from gradtui.run.state.changes.objections import objection_to
from gradtui.run.state.parts.tries import BY_TRY, ORIGIN
from gradtui.run.state.run_state import RunState
from gradtui.run.text import plural
from gradtui.system.regular_file import content_of

if TYPE_CHECKING:
    from gradtui.system.run_files import RunFiles

_MAX_BYTES = 16 << 20

_SCRIPT = """\
# Put these lines where the model and its optimizers have been made. Several models: {{"name": model, ...}}.
import gradtui

gradtui.apply_schedule({schedule}, model, optimizer)
"""


def load(path: Path) -> tuple[Scheduled, ...]:
    """Return the entries of a schedule file. Raises `BadEntry` with one line that names the error and its position."""
    try:
        document = from_toml(content_of(path, _MAX_BYTES))
    except OSError as error:
        raise BadEntry(str(error.strerror or error)) from None
    except ValueError as error:
        raise BadEntry(str(error)) from None
    entries = read(document)
    for entry in entries:
        objection = objection_to(entry.command)
        if objection is not None:
            raise BadEntry(f"{entry.title}: {objection}")
    return entries


def schedule_text(state: RunState, run: str) -> str:
    """What was done to a run, as the content of a schedule file. What was taken back stands there with its `undo`.

    `run` is what to run as a person types it into a shell: the script and its arguments.
    """
    script = shlex.quote(one_line(state.started.script)) if state.started is not None else "the script"
    lines = [
        f"# What was done to {script} while it ran. To do the same again: gradtui --schedule THIS_FILE {one_line(run)}",
        "# `step = 30` is when 30 optimizer steps have been executed, before the next one begins.",
    ]
    if any(changed.joined for applied in state.interventions for changed in applied.changed):
        lines += [
            "# To resume from a checkpoint that the script saved while an entry had added parameters to its optimizer, give",
            "# this file to the resumed run too. Before the script loads that checkpoint, the entries up to the first that",
            "# makes it fit are applied. All others count the steps of the resumed run: delete those that are not wanted.",
        ]
    dropped = state.intervention_count - len(state.interventions)
    if dropped:
        lines.append(f"# Not complete: {dropped} earlier ones were not kept, so a replay will not be the same run.")
    lines.append(f"version = {VERSION}")
    for text, entry in _done(state):
        lines += ["", f"[[do]] # {one_line(text)}"]
        lines += [f"{name} = {_value(value)}" for name, value in to_table(entry).items()]
    return "\n".join(lines) + "\n"


def _done(state: RunState) -> Iterator[tuple[str, Scheduled]]:
    """Yield what was done, with its words, in its order. A state is kept there only if the run has returned to it."""
    asked_for = [each for each in state.kept.returns if each.made.why != BY_TRY]
    returns = {each.made.step: each.made.to_step for each in asked_for}
    kept = {each.kept.number: each.kept for each in asked_for if each.kept is not None}
    events: list[CommandApplied | StateKept] = [*state.interventions, *kept.values()]
    for event in sorted(events, key=attrgetter("at")):
        if isinstance(event, StateKept):
            yield "to return to it", Scheduled(event.step, KeepState(0, event.name))
            continue
        command, step = event.command, event.step
        if command.origin == ORIGIN:
            # A change of a try, which repeats it.
            continue
        if isinstance(command, TryChange) and (ended := state.tries.ended.get(command.id)) is not None:
            command, step = _decided(command, ended.kept), ended.asked_at
        if isinstance(command, ReturnToState):
            # Numbers of states are those of one run.
            command = replace(command, to_step=returns.get(event.step, command.to_step), state=0)
        yield event.text, Scheduled(step, command, event.skipped, event.late)


def _decided(command: TryChange, kept: int) -> TryChange:
    """Return the try that keeps what this one has kept."""
    if not kept:
        return replace(command, keep="none")
    first = command.changes[kept - 1]
    return replace(command, changes=(first, *(each for each in command.changes if each != first)), keep="change")


def plan_text(state: RunState, commands: Sequence[Command], run: str) -> str:
    """Return the content of a schedule file that applies these commands when the present models begin to train.

    `run` is as for `schedule_text`.
    """
    # Models that the script makes later, after pretraining for example, have no parameters before.
    step = state.model_changes[-1].step if state.model_changes else 0
    since = f"; its models begin to train after {plural(step, 'step')}" if step else ""
    lines = [
        f"# To begin a run with this plan: gradtui --schedule THIS_FILE {one_line(run)}{since}",
        f"version = {VERSION}",
    ]
    for command in commands:
        entry = Scheduled(step, command, late=step > 0)
        lines += ["", "[[do]]", *(f"{name} = {_value(value)}" for name, value in to_table(entry).items())]
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """A text as a comment can hold it."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    # TOML's basic strings are JSON's. What an editor would not show as it is, such as a change of direction, is escaped too.
    return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(sign: str) -> str:
    if sign.isprintable() or "\ud800" <= sign <= "\udfff":
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"


class InterventionFiles:
    """The files of one run's interventions; `words` are those of the command line that say what is run."""

    def __init__(self, files: RunFiles, words: Sequence[str]) -> None:
        self._files = files
        self._run = shlex.join(words)
        self._written: int | None = None

    def save(self, state: RunState, kind: str = "saved-schedule") -> str:
        """Write both files, and return a sentence that says where they are. Raises OSError."""
        schedule = self._files.write(kind, ".toml", _writer(schedule_text(state, self._run)))
        script = self._files.write_beside(schedule, ".py", _writer(_SCRIPT.format(schedule=json.dumps(schedule))))
        self._written = state.intervention_count
        count = plural(state.intervention_count, "change")
        again = f"gradtui --schedule {shlex.quote(schedule)} {self._run}"
        return f"{count} written down; to do the same again: {again}; as code: {script}"

    def save_plan(self, state: RunState, commands: Sequence[Command]) -> str:
        """Write a schedule that begins a run with these commands, and return a sentence that says where. Raises OSError."""
        schedule = self._files.write("plan", ".toml", _writer(plan_text(state, commands, self._run)))
        return f"to begin the next run with this plan: gradtui --schedule {shlex.quote(schedule)} {self._run}"

    def closing(self, state: RunState) -> str | None:
        """When the run has ended: the same, if a person has done anything since the last time, or why it fails; None if not."""
        # Commands of a schedule have ids below zero; they are in a file already.
        if state.intervention_count == self._written or all(applied.command.id < 0 for applied in state.interventions):
            return None
        try:
            # By this name the oldest of many are removed.
            return self.save(state, "schedule")
        except OSError as error:
            return f"what was done to the run could not be written down: {error.strerror or error}"


def _writer(text: str) -> Callable[[BinaryIO], object]:
    return lambda file: file.write(text.encode(errors="replace"))
