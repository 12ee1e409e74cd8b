"""What a viewer says to a rank: commands, proposals with what became of them, and requests for its state.

Each is an object of JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.codec import BadEntry, from_words, to_words
from gradtui.protocol.commands import Command, ShowRank


def message_of(command: Command) -> dict[str, Any]:
    """Return a command as a message."""
    if isinstance(command, Confirmation):
        return {"confirm": command.proposal, "is_decided": command.is_decided}
    if isinstance(command, Cancellation):
        return {"cancel": command.proposal}
    if isinstance(command, Proposal):
        return {**_words(command.command), "proposal": command.id, "at_step": command.at_step}
    return _words(command)


def state_request(command: ShowRank) -> dict[str, Any]:
    """Return the message that asks a rank for its state."""
    return {"state": command.id}


def state_requested(message: Mapping[str, Any]) -> int | None:
    """Return the id of the request for the state of this rank that a message is; None if it is a command. Raises `BadEntry`."""
    return _integer(message, "state") if "state" in message else None


def command_in(message: Mapping[str, Any]) -> Command:
    """Return the command in a message.

    Raises:
        BadEntry: it is no message of a viewer.
    """
    if "confirm" in message:
        return Confirmation(0, _integer(message, "confirm"), message.get("is_decided") is True)
    if "cancel" in message:
        return Cancellation(0, _integer(message, "cancel"))
    words = message.get("command")
    if not isinstance(words, dict):
        raise BadEntry("a message is a command, a proposal, or what became of one")
    id_ = _integer(message, "id")
    command = replace(from_words(words, id_), origin=str(message.get("origin", "")))
    if "proposal" in message:
        return Proposal(_integer(message, "proposal"), command, _integer(message, "at_step"), origin=command.origin)
    return command


def _words(command: Command) -> dict[str, Any]:
    return {"command": to_words(command), "id": command.id, "origin": command.origin}


def _integer(message: Mapping[str, Any], name: str) -> int:
    value = message.get(name)
    if type(value) is not int:
        raise BadEntry(f"{name} of a message is a whole number, not {value!r}")
    return value
