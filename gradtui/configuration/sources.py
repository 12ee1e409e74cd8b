"""The settings that options, environment variables and files give: what each allows, and which source is in force.

An option takes precedence over an environment variable, that over the project's `pyproject.toml`, that over the user's
`config.toml`, and that over the default. Imports neither torch nor Textual.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gradtui.configuration.config_files import project_file, read_project_table, read_user_table, user_file
from gradtui.configuration.remembered_theme import remembered_theme, theme_file
from gradtui.configuration.settings import COLUMNS, DEFAULT_REFRESH, DEFAULT_SHARE, ORDERS, THEMES, RemappedKeys
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.keep_limit import DEFAULT_KEEP, KeepLimit
from gradtui.protocol.secrets import mask
from gradtui.system.byte_units import UNITS, parse_size

_KEYS = "keys."
"""The beginning of the name of a remapped key: `pause = "ctrl+space"` in the table `keys` is `keys.pause`."""

_REFRESH_RANGE = (0.5, 30.0)
_MAX_METRIC = 200
_RETURNS, _MAX_RETURNS = 3, 10**9
"""The number of returns of a policy that is only switched on, and the most that can be written."""


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: its name in files; with `--` in front, its option.
        default: its value if no source gives one.
        parse: makes the value of what a source says: a text from an option or a variable, any TOML value from a file. Raises
            `BadEntry`.
        text: writes a value as a source would.
        metavar: what stands behind the option in the help.
        help: what the setting does.
        choices: what the shell completes.
        implied: the value of its option where none stands behind it; empty for an option that needs one.
    """

    name: str
    default: Any
    parse: Callable[[Any], Any]
    text: Callable[[Any], str]
    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    implied: str = ""

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return variable_of(self.name)


def variable_of(name: str) -> str:
    """Return the name of the environment variable of a setting."""
    return "GRADTUI_" + name.upper().replace("-", "_")


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


def nearest(word: str, known: Collection[str]) -> str:
    """Return ` (the nearest is theme)`, or an empty text if no known word resembles it."""
    within = [each for each in known if len(word) > 2 and word in each]
    near = within or difflib.get_close_matches(word[:80], known, n=1, cutoff=0.5)
    return f" (the nearest is {near[0]})" if near else ""


def parse_share(written: Any) -> float:
    """Parse a share of time above 0 % and at most 100 %: `1%`, `0.5 %` or `0.01`."""
    text = str(written).strip()
    match = re.fullmatch(r"([0-9]*\.?[0-9]+|[0-9]+\.|[0-9]+(?:\.[0-9]+)?e-[0-9]+)\s*(%?)", text)
    if match is None or isinstance(written, bool):
        raise BadEntry(f"{written!r} is not a share of time; write it as 1% or 0.01")
    share = float(match[1]) / (100 if match[2] else 1)
    if not match[2] and share >= 1:
        raise BadEntry(f"{written!r} is ambiguous; write {text}% or a number below 1")
    if not (math.isfinite(share) and 0 < share <= 1):
        raise BadEntry(f"{written!r} is not above 0% and at most 100%")
    return share


def parse_keep(written: Any) -> KeepLimit:
    """Parse how much host memory kept states may take: `25%` of what is free, a size such as `8GiB`, or `off`."""
    text = str(written).strip().lower()
    if text == "off" or written is False:
        return KeepLimit()
    if text.endswith("%"):
        share = parse_share(text)
        return KeepLimit(share=share)
    size = None if isinstance(written, (bool, float)) else parse_size(text)
    if size is None or not 0 < size < 1 << 63:
        raise BadEntry(f"{written!r} is no limit of host memory; write 25%, a size such as 8GiB, or off")
    return KeepLimit(bytes=size)


def _keep_text(limit: KeepLimit) -> str:
    if limit.bytes:
        unit, factor = next(each for each in reversed(UNITS) if limit.bytes % each[1] == 0)
        return f"{limit.bytes // factor}{unit}"
    return _share_text(limit.share) if limit.share else "off"


def _parse_refresh(written: Any) -> float:
    low, high = _REFRESH_RANGE
    match = re.fullmatch(r"[0-9]*\.?[0-9]+|[0-9]+\.", str(written).strip())
    if match is None or isinstance(written, bool) or not low <= float(match[0]) <= high:
        raise BadEntry(f"{written!r} is no refresh rate; write a number from {low:g} to {high:g} (times per second)")
    return float(match[0])


def _parse_choice(written: Any, noun: str, choices: tuple[str, ...]) -> str:
    if not isinstance(written, str) or written.strip() not in choices:
        raise BadEntry(f"{written!r} is no {noun}{nearest(str(written), choices)}; write one of {', '.join(choices)}")
    return written.strip()


def _parse_columns(written: Any) -> tuple[str, ...]:
    words = [each for each in written.split(",") if each.strip()] if isinstance(written, str) else written
    if not isinstance(words, list):
        raise BadEntry(f'{written!r} is no list of columns; write ["count", "norm"]')
    return tuple(dict.fromkeys(_parse_choice(each, "column", COLUMNS) for each in words))


def _parse_keys(written: Any) -> str:
    words = [written] if isinstance(written, str) else written
    if not isinstance(words, list) or not words or not all(isinstance(each, str) and each for each in words):
        raise BadEntry(f'{written!r} is no key; write a key such as "ctrl+space", or a list of keys')
    return ",".join(words)


def _parse_rules(written: Any) -> tuple[str, ...]:
    if not isinstance(written, list) or not all(isinstance(each, str) for each in written):
        raise BadEntry('it is no list of strings; write a list such as ["GT204", "GT3"]')
    from gradtui.run.diagnostics.selection import rule_words

    return rule_words(written)


def _parse_switch(written: Any) -> bool:
    if isinstance(written, bool):
        return written
    return _parse_choice(written, "switch", ("on", "off")) == "on"


def _parse_returns(written: Any) -> int:
    number = _RETURNS if written is True else 0 if written is False else written
    if isinstance(number, str):
        word = number.strip()
        number = _parse_returns(word == "on") if word in ("on", "off") else int(word) if word.isdecimal() else word
    if not isinstance(number, int) or not 0 <= number <= _MAX_RETURNS:
        raise BadEntry(f"{written!r} is no number of returns; write a whole number, such as {_RETURNS}, or off")
    return number


def _parse_metric(written: Any) -> str:
    if not isinstance(written, str) or len(written) > _MAX_METRIC:
        raise BadEntry(f'{str(written)[:40]!r} is no name of a metric; write "val/loss"')
    return written.strip()


def _parse_command(written: Any) -> tuple[str, ...]:
    try:
        words = shlex.split(written) if isinstance(written, str) else written
    except ValueError as error:
        raise BadEntry(f"{written!r} is no command: {error}") from None
    if not isinstance(words, list) or not all(isinstance(each, str) and "\0" not in each for each in words):
        raise BadEntry(f'{written!r} is no command; write "notify-send training", or a list of its words')
    return tuple(words)


def _share_text(share: float) -> str:
    return f"{100 * share:g}%"


def _returns_text(count: int) -> str:
    return str(count) if count else "off"


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "theme", THEMES[0], lambda written: _parse_choice(written, "theme", THEMES), str,
        "NAME", "Colours of the dashboard. Without it, the theme chosen last in the dashboard.", THEMES,
    ),
    Setting(
        "columns", (), _parse_columns, lambda columns: ", ".join(columns) or "those that fit",
        "NAMES", f"Columns of the tree, separated by commas: {', '.join(COLUMNS)}. Without it, those that fit.", COLUMNS,
    ),
    Setting(
        "order", ORDERS[0], lambda written: _parse_choice(written, "order", ORDERS), str,
        "ORDER", f"Order of modules in the tree: {' or '.join(ORDERS)}.  [default: {ORDERS[0]}]", ORDERS,
    ),
    Setting(
        "budget", DEFAULT_SHARE, parse_share, _share_text,
        "SHARE",
        "Share of the step time that sampled measuring aims at; the hooks come on top."
        f"  [default: {_share_text(DEFAULT_SHARE)}]",
    ),
    Setting(
        "keep", DEFAULT_KEEP, parse_keep, _keep_text,
        "LIMIT",
        "Host memory that all kept states together may take: a share of what is free, a size such as 8GiB, or off."
        f"  [default: {_keep_text(DEFAULT_KEEP)}]",
    ),
    Setting(
        "refresh", DEFAULT_REFRESH, _parse_refresh, lambda rate: f"{rate:g}",
        "RATE", f"Redraws of the dashboard per second.  [default: {DEFAULT_REFRESH:g}]",
    ),
    Setting(
        "pin", "", _parse_metric, lambda name: name or "none",
        "METRIC", "Show this metric of the script in the header and in the lines of --plain: its name, or words of it.",
    ),
    Setting(
        "alert", True, _parse_switch, lambda is_on: "on" if is_on else "off",
        "SWITCH",
        "Ring the terminal's bell, and show a notification, at the end, a failure, the first NaN and a breakpoint, unless the "
        "terminal has the focus: on or off.  [default: on]", ("on", "off"),
    ),
    Setting(
        "notify", (), _parse_command, lambda words: shlex.join(mask(words)) or "none",
        "COMMAND",
        "Run COMMAND at the events of --alert unless you are at the keyboard. GRADTUI_MESSAGE and others have the facts.",
    ),
    Setting(
        "return-at-nan", 0, _parse_returns, _returns_text,
        "[N]",
        "Return to the newest finite state where NaN or Inf has spread, and train on from the next batch; give up after N "
        f"returns in a row that do not help ({_RETURNS} without N). Every step is measured.  [default: off]",
        implied=str(_RETURNS),
    ),
    Setting(
        "return-at-spike", 0, _parse_returns, _returns_text,
        "[N]",
        "The same at a spike of the loss or of the gradient norm.  [default: off]", implied=str(_RETURNS),
    ),
)  # fmt: skip
"""The settings that have an option, an environment variable, and an entry in both files."""

REPLACED = {"ui-budget": "refresh"}
"""Settings of earlier versions, and what to write instead."""

_RULES = tuple(
    Setting(name, (), _parse_rules, lambda words: ", ".join(words) or "none", "", "") for name in ("select", "ignore")
)
"""The settings of a project only: the options of these names do not replace them, they come on top."""


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
    values = {each.name: Value(each.default, "default", each.text(each.default)) for each in (*SETTINGS, *_RULES)}
    problems = []
    for source in sources:
        known = {each.name: each for each in (*SETTINGS, *(_RULES if source.is_project else ()))}
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
