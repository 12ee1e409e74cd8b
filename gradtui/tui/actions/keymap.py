"""The keys that the user's settings give to actions: which entries are right, and the actions with these keys. Pure."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.binding import Binding, InvalidBinding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from gradtui.configuration.settings import RemappedKeys
from gradtui.dataclass import dataclass
from gradtui.tui.actions.action import Action
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.actions.output_actions import SHARED_WITH_OUTPUT
from gradtui.tui.actions.plot_actions import SHARED_WITH_PLOTS

if TYPE_CHECKING:
    from textual.app import App

_MODIFIERS = {"ctrl", "shift", "alt", "meta", "super", "hyper"}
_NAMED_KEYS = {key.value.rpartition("+")[2] for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())
_SENT_AS = {"ctrl+space": "ctrl+@"}
"""Keys that most terminals send as another one."""


@dataclass(frozen=True)
class Keymap:
    """The remapped keys.

    Attributes:
        keys: the keys of each remapped action, by its id, with names as in Textual.
        problems: what is wrong with the entries that are ignored, one line each.
    """

    keys: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...] = ()

    @property
    def bound(self) -> dict[str, str]:
        """The map for `App.set_keymap`."""
        return {
            id: ",".join([*keys, *(_SENT_AS[key] for key in keys if key in _SENT_AS)]) for id, keys in self.keys.items()
        }

    def apply(self, actions: Iterable[Action]) -> list[Action]:
        """Return the actions with their keys in force."""
        return [
            replace(action, keys=self.keys[action.id], shown_key="") if action.id in self.keys else action
            for action in actions
        ]

    def action(self, id: str) -> Action:
        """Return the action with an id, with its keys in force."""
        return self.apply(action for action in ACTIONS if action.id == id)[0]


def keymap_of(app: App[Any]) -> Keymap:
    """Return the keymap in force."""
    found: Keymap = app.keymap  # type: ignore[attr-defined]  # every app of this package has one
    return found


def keymap(entries: Sequence[RemappedKeys]) -> Keymap:
    """Return the keymap of the entries that are right: whose action and keys exist, and whose keys no other action has.

    Textual reports a clash too (`handle_bindings_clash`), but only within one widget, at each key, and wrongly for an action
    with several keys.
    """
    keys: dict[str, tuple[str, ...]] = {}
    problems = []
    known = {action.id: action for action in ACTIONS}
    origins = {entry.action: f"{entry.origin}: keys.{entry.action}" for entry in entries}
    for entry in entries:
        try:
            names = tuple(dict.fromkeys(binding.key for binding in Binding.make_bindings([Binding(entry.keys, "")])))
        except InvalidBinding:
            names = ("",)
        wrong = next((name for name in names if not _is_key(name)), None)
        if entry.action not in known:
            near = difflib.get_close_matches(entry.action[:80], known, n=1)
            hint = f" (the nearest is {near[0]})" if near else ""
            problems.append(f"{origins[entry.action]}: there is no such action{hint}; gradtui config --keys lists all")
        elif wrong is not None:
            hint = "write a key such as x, f2, slash or ctrl+space"
            problems.append(f"{origins[entry.action]}: {wrong or entry.keys!r} is no key; {hint}")
        else:
            keys[entry.action] = names
    while (found := _clash(keys)) is not None:
        entry_id, key, other = found
        del keys[entry_id]
        problems.append(f"{origins[entry_id]}: {key} is the key of {other}; give {other} another key too")
    return Keymap(keys, tuple(problems))


def _is_key(name: str) -> bool:
    *modifiers, base = name.split("+")
    if not _MODIFIERS.issuperset(modifiers):
        return False
    if len(base) == 1 or base in _NAMED_KEYS:
        return True
    try:
        return bool(unicodedata.lookup(base.replace("_", " ")))
    except KeyError:
        return False


def _clash(keys: Mapping[str, tuple[str, ...]]) -> tuple[str, str, str] | None:
    """Return the id of a remapped action, its key, and the id of another action with that key where both are at work.

    An action may keep a key that it has by default: on the plots screen `q` closes the plots, although it leaves elsewhere.
    """
    actions = {action.id: action for action in ACTIONS}
    for id, own in reversed([*keys.items()]):
        for action in ACTIONS:
            if action.id == id or not _meet(actions[id], action):
                continue
            both = [key for key in own if key not in actions[id].keys and key in keys.get(action.id, action.keys)]
            if both:
                return id, both[0], action.id
    return None


def _meet(one: Action, other: Action) -> bool:
    """Whether there is a screen on which both actions have keys."""
    return bool(_screens(one) & _screens(other))


def _screens(action: Action) -> set[str]:
    if action.scope == "app":
        return {"dashboard", "plots", "output"}
    if action.scope in ("plots", "output", "replay"):
        return {action.scope}
    shared = {"plots": SHARED_WITH_PLOTS, "output": SHARED_WITH_OUTPUT}
    return {"dashboard", *(screen for screen, ids in shared.items() if action.id in ids)}
