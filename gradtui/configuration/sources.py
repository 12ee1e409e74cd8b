"""The settings that options, environment variables and files give: what each of them allows.

`gradtui --help` and the completion of a shell import this module, so it imports no other library, and little of Python's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from typing import Any

from gradtui.configuration.choices import COLUMNS, DEFAULT_REFRESH, DEFAULT_SHARE, ORDERS, THEMES
from gradtui.named_tuple import NamedTuple
from gradtui.protocol.bad_entry import BadEntry
from gradtui.protocol.keep_limit import DEFAULT_KEEP, KeepLimit
from gradtui.system.byte_units import UNITS, parse_size

_REFRESH_RANGE = (0.5, 30.0)
_MAX_METRIC = 200
_RETURNS, _MAX_RETURNS = 3, 10**9
"""The number of returns of a policy that is only switched on, and the most that can be written."""


class Setting(NamedTuple):
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


def nearest(word: str, known: Collection[str]) -> str:
    """Return ` (the nearest is theme)`, or an empty text if no known word resembles it."""
    import difflib

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
    import shlex

    try:
        words = shlex.split(written) if isinstance(written, str) else written
    except ValueError as error:
        raise BadEntry(f"{written!r} is no command: {error}") from None
    if not isinstance(words, list) or not all(isinstance(each, str) and "\0" not in each for each in words):
        raise BadEntry(f'{written!r} is no command; write "notify-send training", or a list of its words')
    return tuple(words)


def _command_text(words: tuple[str, ...]) -> str:
    if not words:
        return "none"
    import shlex

    from gradtui.protocol.secrets import mask

    return shlex.join(mask(words))


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
        "notify", (), _parse_command, _command_text,
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

PROJECT_RULES = tuple(
    Setting(name, (), _parse_rules, lambda words: ", ".join(words) or "none", "", "") for name in ("select", "ignore")
)
"""The settings of a project only: the options of these names do not replace them, they come on top."""
