"""The parts of the summary about the changes made to a run, and which of them are in force."""

from __future__ import annotations

from typing import Any

from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import SetTrainable
from gradtui.state.run_state import RunState
from gradtui.text import command_text


def freezes(state: RunState) -> dict[str, Any]:
    """Return what commands hold frozen now."""
    tree, found = state.tree, state.tree.freezes
    return {
        "frozen": [tree.parameters[index].path for index in found.frozen] if found else [],
        "contending": [tree.parameters[index].path for index in found.contending] if found else [],
        "added_to_optimizers": [
            {"optimizer": optimizer.type_name, "own": optimizer.own, "added": list(optimizer.added)}
            for optimizer in (state.extended.optimizers if state.extended else ())
        ],
        "trained_and_taken_out": list(state.extended.taken_out) if state.extended else [],
        "holding_statistics": [tree.modules[index].path for index in found.holding] if found else [],
    }


def interventions(state: RunState) -> list[dict[str, Any]]:
    """The newest changes that were applied."""
    return [
        {
            "step": event.step,
            "seconds": event.at,
            "text": event.text,
            **to_words(event.command),
            "trainable": event.command.trainable if isinstance(event.command, SetTrainable) else None,
            "skipped": event.skipped,
            "parameters": [path for changed in event.changed for path in changed.paths],
        }
        for event in state.interventions
    ]


def refused(state: RunState) -> list[dict[str, Any]]:
    """The newest commands that were not carried out."""
    return [
        {"step": event.step, "command": command_text(event.command), "reason": event.reason} for event in state.refused
    ]
