"""Packages of others that add rules and readers of loggers: which are installed, and what is wrong with them. Any thread.

A plugin is a module that an entry point of `RULES` or `METRICS` names. It says for which version of this interface it is:
`GRADTUI_PLUGIN_API = 1`. One that cannot be used is left out, and a line says why; nothing that it raises goes further.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

PLUGIN_API = 1
"""The version of the interface. It becomes larger when a plugin for the one before would not work any more."""
RULES, METRICS = "gradtui.rules", "gradtui.metrics"
"""The groups of entry points: a module with `RULES`, and one with `LOGGING_CALLS`."""
_SLOW_S = 1.0
"""Seconds of an import that are worth a line."""
ERRORS = (Exception, SystemExit, GeneratorExit)
"""What a plugin may raise without harm. Ctrl+C at that moment is the user's."""


class Plugin(NamedTuple):
    """An entry point that was loaded: its name, and what it names."""

    name: str
    module: Any


_loaded: dict[str, list[Plugin]] = {}
_problems: dict[str, str] = {}


def load(*groups: str) -> None:
    """Import the plugins of these groups that are installed, once in a process.

    That is when the script first uses torch, and for rules where they are listed. Readers of loggers import torch.
    """
    awaited = [group for group in groups if group not in _loaded]
    if not awaited:
        return
    _loaded.update((group, []) for group in awaited)
    try:
        from importlib.metadata import entry_points

        if not _are_installed(awaited):
            return
        # Each call opens a file of every package that is installed, and reads it.
        installed = entry_points()
        found = [each for group in awaited for each in installed.select(group=group)]
    except ERRORS as error:
        note("plugins", error)
        return
    for each in found:
        part, began = f"plugin {each.name}", perf_counter()
        try:
            module = each.load()
            version = getattr(module, "GRADTUI_PLUGIN_API", None)
        except ERRORS as error:
            note(part, error)
            continue
        if version is not PLUGIN_API:
            note(part, f"it is for the plugin API {text_of(version)[:20]}, and this gradtui has {PLUGIN_API}")
            continue
        if (seconds := perf_counter() - began) > _SLOW_S:
            note(part, f"its import took {seconds:.1f} s")
        _loaded[each.group].append(Plugin(each.name, module))


def _are_installed(groups: Sequence[str]) -> bool:
    """Return whether the file of some package has one of these groups: to look takes half the time of reading them all."""
    from importlib.metadata import distributions

    headings = [f"[{group}]" for group in groups]
    files = (each.read_text("entry_points.txt") or "" for each in distributions())
    return any(heading in file for file in files for heading in headings)


def is_loaded(group: str) -> bool:
    """Return whether the plugins of a group have been looked for."""
    return group in _loaded


def plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plugins of a group that have been loaded."""
    return tuple(_loaded.get(group, ()))


def note(part: str, problem: BaseException | str) -> None:
    """Keep what is wrong with a plugin. The newest line of each part counts."""
    _problems[part] = problem if isinstance(problem, str) else f"{type(problem).__name__}: {text_of(problem)}"


def problems() -> MappingProxyType[str, str]:
    """Return what is wrong, by part: `plugin NAME`."""
    return MappingProxyType(dict(_problems))


def text_of(value: object) -> str:
    """Return what an object of a plugin says, as one line, whatever its `__str__` does."""
    try:
        return " ".join(str(value).split())[:300]
    except ERRORS:
        return "(not readable)"
