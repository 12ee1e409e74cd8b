"""Which source of a setting is in force.

An option takes precedence over an environment variable, that over the project's `pyproject.toml`, that over the user's
`config.toml`, and that over the default. Imports neither torch nor Textual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradtui.configuration.choices import THEMES
from gradtui.configuration.config_files import project_file, read_project_table, read_user_table, user_file
from gradtui.configuration.remembered_theme import remembered_theme, theme_file
from gradtui.configuration.settings import RemappedKeys
from gradtui.configuration.sources import PROJECT_RULES, REPLACED, SETTINGS, nearest, variable_of
from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.protocol.bad_entry import BadEntry

_KEYS = "keys."
"""The beginning of the name of a remapped key: `pause = "ctrl+space"` in the table `keys` is `keys.pause`."""


class Value(NamedTuple):
    """A value in force, and where it comes from."""

    value: Any
    origin: str
    text: str


class Source(NamedTuple):
    """What one place says: an option, a variable or a file."""

    origin: str
    entries: Mapping[str, Any]
    is_project: bool = False


@dataclass(frozen=True)
class Configuration:
    """The values in force by name, and what is wrong with the entries that are ignored, one line each."""

    values: Mapping[str, Value]
    problems: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    @property
    def keys(self) -> tuple[RemappedKeys, ...]:
        """The keys of remapped actions."""
        found = [(name, value) for name, value in self.values.items() if name.startswith(_KEYS)]
        return tuple(RemappedKeys(name.removeprefix(_KEYS), value.text, value.origin) for name, value in found)


def configuration(
    folder: Path | None, options: Mapping[str, Any], environ: Mapping[str, str], *, with_user: bool = True
) -> Configuration:
    """Return the settings in force.

    Args:
        folder: the directory in which the search for `pyproject.toml` begins; None if there is none.
        options: what the command line says, by the names of settings; None for an option that is not given.
        environ: the environment.
        with_user: whether the environment and the user's own files count.
    """
    sources, problems = [], []
    for read in (_remembered, _user, lambda: _project(folder)) if with_user else (lambda: _project(folder),):
        try:
            sources.append(read())
        except BadEntry as bad:
            problems.append(str(bad))
    if with_user:
        for name, instead in REPLACED.items():
            if environ.get(variable_of(name)):
                problems.append(f"{variable_of(name)}: there is no such variable (use {variable_of(instead)})")
        given = {each: environ[each.variable] for each in SETTINGS if environ.get(each.variable)}
        sources += [Source(each.variable, {each.name: text}) for each, text in given.items()]
    sources += [Source(f"--{name}", {name: text}) for name, text in options.items() if text is not None]
    found = _in_force(sources)
    return replace(found, problems=(*problems, *found.problems))


def _remembered() -> Source:
    theme = remembered_theme()
    return Source(f"chosen last ({theme_file()})", {"theme": theme} if theme in THEMES else {})


def _user() -> Source:
    file = user_file()
    try:
        return Source(str(file), read_user_table())
    except BadEntry as bad:
        raise BadEntry(f"{file}: {bad}") from None


def _project(folder: Path | None) -> Source:
    file = None
    try:
        file = project_file(folder) if folder is not None else None
        return Source(str(file), read_project_table(file) if file is not None else {}, is_project=True)
    except BadEntry as bad:
        raise BadEntry(f"{file}: {bad}") from None
    except OSError:
        # A directory that may not be read belongs to no project.
        return Source("", {}, is_project=True)


def _in_force(sources: Iterable[Source]) -> Configuration:
    values = {
        each.name: Value(each.default, "default", each.text(each.default)) for each in (*SETTINGS, *PROJECT_RULES)
    }
    problems = []
    for source in sources:
        known = {each.name: each for each in (*SETTINGS, *(PROJECT_RULES if source.is_project else ()))}
        for name, written in _flat(source.entries):
            try:
                setting = known.get(name)
                if name.startswith(_KEYS):
                    value = _parse_keys(written)
                    values[name] = Value(value, source.origin, value)
                elif setting is not None:
                    value = setting.parse(written)
                    values[name] = Value(value, source.origin, setting.text(value))
                elif name == "keys":
                    raise BadEntry('it is no table; write [keys], and below it pause = "ctrl+space"')
                else:
                    allowed = (*known, "keys")
                    instead = REPLACED.get(name.replace("_", "-"))
                    near = f" (use {instead})" if instead is not None else nearest(name, allowed)
                    raise BadEntry(f"there is no such entry{near}; write one of {', '.join(allowed)}")
            except BadEntry as bad:
                problems.append(f"{source.origin}: {name}: {bad}")
    return Configuration(values, tuple(problems))


def _flat(entries: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, written in entries.items():
        if name == "keys" and isinstance(written, dict):
            yield from ((_KEYS + action, keys) for action, keys in written.items())
        else:
            yield name, written


def _parse_keys(written: Any) -> str:
    words = [written] if isinstance(written, str) else written
    if not isinstance(words, list) or not words or not all(isinstance(each, str) and each for each in words):
        raise BadEntry(f'{written!r} is no key; write a key such as "ctrl+space", or a list of keys')
    return ",".join(words)
