"""Save and load what the user has frozen, as plain data for the script's own checkpoint.

A resumed run keeps its freezes this way. The script calls `state_dict` and `load_state_dict` on its training thread.
Neither ever raises: a script can train on from a checkpoint whose freezes cannot be restored, so a problem is one line on
stderr.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradtui.printable import write_line
from gradtui.probe.active import active_probe
from gradtui.probe.probe import Probe

_VERSION = 1
_Saved = tuple[tuple[str, ...], tuple[str, ...]]
_waiting: list[_Saved] = []
"""The state that was loaded while no probe was attached: at most one."""


def state_dict() -> dict[str, Any]:
    """Return what commands have frozen so far, to be saved with the script's own state.

    Returns:
        `{"version": 1, "frozen": [paths of parameters], "holding_statistics": [paths of modules]}`. The lists hold strings,
        which JSON and `torch.save` accept. They include freezes that were loaded and have not been applied yet. If no probe is
        attached, they hold what was loaded, so that a run without gradtui in between loses nothing.
    """
    probe = active_probe()
    frozen, holding = (
        probe.dispatcher.trainability.saved() if probe is not None else _waiting[0] if _waiting else ((), ())
    )
    return {"version": _VERSION, "frozen": list(frozen), "holding_statistics": list(holding)}


def load_state_dict(state: Mapping[str, Any]) -> None:
    """Freeze again what was frozen when `state_dict` was called, at the first step boundary at which there is a model.

    Call it at any time, before or after the model is constructed. One line on stderr names what the state contains and the
    model no longer has. The rest is frozen.
    """
    saved = _read(state)
    if saved is None or saved == ((), ()):
        return
    probe = active_probe()
    if probe is not None:
        probe.dispatcher.trainability.load(*saved)
        return
    _waiting[:] = [saved]
    count = len(saved[0])
    _say(f"nothing watches this run yet: {count} frozen tensor{'' if count == 1 else 's'} of a saved state will wait")


def hand_over(probe: Probe) -> None:
    """Give a newly attached probe the state that was loaded before."""
    if _waiting:
        probe.dispatcher.trainability.load(*_waiting.pop())


def _read(state: Any) -> _Saved | None:
    if not isinstance(state, Mapping) or state.get("version") != _VERSION:
        _say("this is not a result of gradtui.state_dict(), or one of a later version: nothing is frozen")
        return None
    lists = [state.get("frozen", ()), state.get("holding_statistics", ())]
    if not all(isinstance(paths, (list, tuple)) and all(isinstance(path, str) for path in paths) for paths in lists):
        _say("the saved state must have two lists of paths, `frozen` and `holding_statistics`: nothing is frozen")
        return None
    return tuple(lists[0]), tuple(lists[1])


def _say(line: str) -> None:
    write_line(line)
