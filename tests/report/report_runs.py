"""Recordings for tests of reports: an ordinary run with changes and a finding, and the same with hostile names."""

from __future__ import annotations

import json
import math
from pathlib import Path

from helpers.fakes import MIB, coop_model, coop_run
from helpers.recordings import record

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable, Undo
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.protocol.freezes import Changed
from gradtui.protocol.vocabulary import Holding, Phase

HOSTILE = (
    "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> ]]> \" ' & &amp; `|\\ @admin #1 \u202e\u2028\x1b[2J "
    "https://example.org [a](javascript:alert(3)) ${7*7} {{7*7}}\ud800"
)
"""What a name might try in HTML, in a script, in Markdown, and in a terminal."""


def step_totals(step: int) -> ev.StepTotals:
    """The memory at the end of the phases of a step, as the batches vary in length."""
    forward = (60 + step % 5) * MIB
    return ev.StepTotals(step, forward, 50 * MIB, 40 * MIB, forward)


def events(steps: int = 60) -> list[ev.Event]:
    """A run whose text encoder is unfrozen at step 20, and frozen again by an undo at step 40. The step after
    the last one has no finite norm."""
    model = coop_model()
    changed = tuple(
        index for index, info in enumerate(model.parameters) if info.path.startswith("text_encoder.blocks.7")
    )
    paths = tuple(model.parameters[index].path for index in changed)
    unfreeze = SetTrainable(1, "text_encoder.blocks.7", True)
    undo = Undo(2)
    before, after = StepMemory(20, None, 90 * MIB, 18 * MIB), StepMemory(24, None, 96 * MIB, 20 * MIB)
    run = coop_run(steps)
    run += [
        ev.StepMemoryMeasured(
            4.0, min(first + 9, steps), tuple(map(step_totals, range(first, min(first + 10, steps + 1))))
        )
        for first in range(1, steps + 1, 10)
    ]
    run += [
        ev.GradientsMeasured(6.0, steps + 1, math.nan, math.inf, None),
        ev.CommandApplied(3.0, 20, unfreeze, "unfroze it", changed, (Changed(True, paths),)),
        ev.ReceiptTaken(4.0, 24, 1, "unfroze it: more", True, Effect(before, after, joined=(("AdamW", len(paths)),))),
        ev.CommandApplied(5.0, 40, undo, "froze it", changed, (Changed(False, paths),), undone=1),
        ev.CommandRejected(5.5, 41, SetTrainable(3, "image_encoder", True), "its gradients would be NaN"),
        ev.StepMemoryProfiled(
            6.0, 45, (10 * MIB, 30 * MIB, 50 * MIB, 40 * MIB, 20 * MIB), 5, ((Phase.FORWARD, 0), (Phase.BACKWARD, 3)),
            50 * MIB, Phase.FORWARD, 3, (Holding("activations", 3, 38 * MIB, 7), Holding("other", -1, 12 * MIB, 1)),
            (None,) * len(model.modules), True,
        ),
    ]  # fmt: skip
    return run


def ended(exit_code: int = 0, error: str | None = None, steps: int = 60) -> ev.RunEnded:
    return ev.RunEnded(9.0, steps, exit_code, error)


def record_run(path: Path, *more: ev.Event, steps: int = 60) -> Path:
    """Write the recording of `events` and `more`."""
    return record(path, [*events(steps), *more], gradtui="0.1.0", began=1.7e9, rules=None)


def hostile_copy(source: Path, target: Path, *names: str) -> Path:
    """Copy a recording, with `HOSTILE` in place of each of these names."""
    written = source.read_text(encoding="utf-8")
    for name in names:
        assert name in written
        written = written.replace(name, json.dumps(HOSTILE)[1:-1])
    target.write_text(written, encoding="utf-8")
    return target
