"""Convert commands to plain dictionaries and back: a word for the command and its fields by name. No ids, no class names.

`SetTrainable` has two words, `freeze` and `unfreeze`, and so has `SetRowsTrainable`. The word of every other command is its
class name in snake case. Fields with their default value are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import re
import sys
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gradtui.protocol import commands
from gradtui.protocol.bad_entry import BadEntry as BadEntry
from gradtui.protocol.commands import Command, Intervention, SetRowsTrainable, SetTrainable


def to_words(command: Command) -> dict[str, Any]:
    """Return a command as a dictionary: `command` first, then its fields."""
    kind = type(command)
    word, preset = next(
        (word, preset)
        for word, (known, preset) in _kinds().items()
        if known is kind and all(getattr(command, name) == value for name, value in preset.items())
    )
    fields = _fields(kind, preset)
    values = {name: getattr(command, name) for name in fields}
    given = {name: value for name, value in values.items() if fields[name].default != value}
    return {"command": word, **given}


def from_words(words: Mapping[str, Any], id_: int) -> Command:
    """Return the command that a dictionary describes, with the id `id_`. Raises `BadEntry`."""
    if "command" not in words:
        raise BadEntry(f"command is missing; it is one of {', '.join(_kinds())}")
    word = words["command"]
    if not isinstance(word, str) or word not in _kinds():
        raise BadEntry(f"there is no command {shown(word)}{_in_full(word) or _near(word, _kinds())}")
    kind, preset = _kinds()[word]
    fields = _fields(kind, preset)
    hints = get_type_hints(kind)
    given = {name: value for name, value in words.items() if name != "command"}
    for name, value in given.items():
        if name not in fields:
            raise BadEntry(f"{word} has no field {shown(name)}{_near(name, fields)}")
        if not _fits(value, hints[name]):
            raise BadEntry(f"{name} of {word} is {_in_words(hints[name])}, not {shown(value)}")
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in given]
    if missing:
        raise BadEntry(f"{word} needs {' and '.join(missing)}")
    # TOML arrays are lists; the fields of a frozen command must be immutable.
    fixed = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    values: dict[str, Any] = {**preset, **fixed}
    return kind(id=id_, **values)


def words_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the dictionary of a command that a person has typed: its word, then values in the order of its fields, or
    `field=value`. A word may have - for _, and short forms: `set-lr 0.01`, `step 5`, `checkpoint PATH`.

    A `set-lr` need not name the param group: the run chooses it if it has only one
    (`gradtui.run.state.changes.objections.in_full`). `set-lr PATH 0.01` sets the rate of a module.

    Raises:
        BadEntry: it is no command. The message is one line.
    """
    if not arguments:
        raise BadEntry(f"which command? It is one of {', '.join(typed_words())}")
    if arguments[0] in ("try", "try-change", "try_change"):
        return _tried(arguments[1:])
    arguments = _with_file(_with_rows(arguments))
    typed = arguments[0].replace("-", "_")
    word, preset = _SHORT.get(typed, (typed, {}))
    if typed == "set_lr" and sum("=" not in each for each in arguments) > 2:
        word = typed = "set_learning_rate"
    if word not in _kinds():
        near = difflib.get_close_matches(arguments[0].replace("_", "-"), typed_words(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(typed_words())}"
        raise BadEntry(f"there is no command {shown(arguments[0])}; {hint}")
    kind, fixed = _kinds()[word]
    hints = {name: get_type_hints(kind)[name] for name in _fields(kind, {**fixed, **preset})}
    free = list(hints)
    found = {"command": word, **preset}
    if typed == "set_lr":
        free = ["learning_rate"]
    for argument in arguments[1:]:
        name, equals, value = argument.partition("=")
        if not (equals and name in hints):
            name, value = next((each for each in free if each not in found), ""), argument
        if not name:
            raise BadEntry(
                f"{arguments[0]} does not take {shown(argument)}; it takes {', '.join(hints) or 'nothing more'}"
            )
        found[name] = _value_of(value, hints[name])
    if typed == "set_lr" and "learning_rate" not in found:
        raise BadEntry("set-lr needs the learning rate: set-lr 0.001, or set-lr PATH 0.001 for a module")
    return found


def _with_rows(arguments: Sequence[str]) -> list[str]:
    """Return words in which `freeze PATH --rows ROWS` is `freeze_rows PATH rows=ROWS`. Raises `BadEntry`."""
    if "--rows" not in arguments:
        return [*arguments]
    at = arguments.index("--rows")
    rest = [*arguments[:at], *arguments[at + 2 :]]
    if rest[:1] not in (["freeze"], ["unfreeze"]) or "--rows" in rest:
        raise BadEntry("--rows is for freeze and unfreeze, once: freeze embed.weight --rows 0:32000")
    if at + 1 == len(arguments):
        raise BadEntry("--rows needs rows: freeze embed.weight --rows 0:32000")
    return [f"{rest[0]}_rows", *rest[1:], f"rows={arguments[at + 1]}"]


def _with_file(arguments: Sequence[str]) -> list[str]:
    """Return words in which `keep --to FILE --force` is `keep file=FILE replace=true`. Raises `BadEntry`."""
    words = [each for each in arguments if each != "--force"]
    forced = ["replace=true"] if len(words) < len(arguments) else []
    if "--to" not in words:
        return [*words, *forced]
    at = words.index("--to")
    rest = [*words[:at], *words[at + 2 :]]
    if at + 1 == len(words) or "--to" in rest:
        raise BadEntry("--to needs one file: keep --to run.safetensors")
    return [*rest, f"file={words[at + 1]}", *forced]


def _tried(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the dictionary of a try: each argument is a whole change, with the commas of its selections."""
    hints = get_type_hints(commands.TryChange)
    options = [each.partition("=") for each in arguments]
    named = {
        name: _value_of(value, hints[name]) for name, _, value in options if name in ("steps", "keep", "held_aside")
    }
    return {
        "command": "try_change",
        "changes": [each for each in arguments if each.partition("=")[0] not in named],
        **named,
    }


def shown(value: object) -> str:
    """Return a value as a line of a message names it: in quotes if it is a text, and not all of it if it is long."""
    if isinstance(value, int) and abs(value) >= _LARGE:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


_MAX_SHOWN = 200
_LARGE = 10**40


_SHORT: dict[str, tuple[str, dict[str, Any]]] = {
    "checkpoint": ("set_checkpointing", {"on": True}),
    "keep_activations": ("set_checkpointing", {"on": False}),
    "forget": ("forget_state", {}),
    "keep": ("keep_state", {}),
    "rename": ("rename_state", {}),
    "return": ("return_to_state", {}),
    "set_lr": ("set_group", {}),
    "step": ("run_steps", {}),
    "stop": ("stop_training", {}),
    "try": ("try_change", {}),
}
"""Short forms: the word, and what they set."""


def typed_words() -> list[str]:
    """Return the words with which a typed command begins, in alphabetical order."""
    return sorted(word.replace("_", "-") for word in {*_SHORT, *_kinds()})


_TRUTH = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def _value_of(text: str, hint: Any) -> Any:
    """Return what a text means for a field; the text itself where it means nothing else, which `from_words` then refuses."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if get_origin(hint) is tuple:
        return [_value_of(each, get_args(hint)[0]) for each in text.split(",") if each]
    if bool in parts:
        return _TRUTH.get(text.lower(), text)
    for number in (int, float):
        if number in parts:
            with contextlib.suppress(ValueError):
                return number(text)
    return text


def _fields(kind: type[Command], preset: Mapping[str, Any]) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a command that its word does not set, by name. Who sent it under which number is none of them."""
    return {field.name: field for field in dataclasses.fields(kind) if field.name not in ("id", "origin", *preset)}


@cache
def _kinds() -> dict[str, tuple[type[Command], dict[str, Any]]]:
    """Map each word to its command class and to the fields that the word itself sets."""
    found: dict[str, tuple[type[Command], dict[str, Any]]] = {
        "freeze": (SetTrainable, {"trainable": False}),
        "unfreeze": (SetTrainable, {"trainable": True}),
        "freeze_rows": (SetRowsTrainable, {"trainable": False}),
        "unfreeze_rows": (SetRowsTrainable, {"trainable": True}),
    }
    for kind in vars(commands).values():
        is_kind = isinstance(kind, type) and issubclass(kind, Command)
        if is_kind and kind not in (Command, Intervention, SetTrainable, SetRowsTrainable):
            found[re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()] = (kind, {})
    return found


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in get_args(hint))
    if origin is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(part, get_args(hint)[0]) for part in value)
    if hint is type(None):
        return value is None
    if hint is float:
        # A whole number of a file may have more digits than any float.
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    # In Python a bool is an int; in a schedule file `true` is no number.
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _in_words(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType, Literal):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return " or ".join(repr(part) if get_origin(hint) is Literal else _in_words(part) for part in parts)
    if get_origin(hint) is tuple:
        return f"a list, each {_in_words(get_args(hint)[0])}"
    return {str: "a text in quotes", bool: "true or false", int: "a whole number", float: "a finite number"}.get(
        hint, "a value"
    )


def _in_full(word: object) -> str:
    """Return the word and the fields for one that only a typed command may have; empty if it is none."""
    typed = str(word).replace("-", "_")
    known, preset = _SHORT.get(typed, (typed, {}))
    fields = "".join(f" with {name} = {str(value).lower()}" for name, value in preset.items())
    return f"; did you mean {known}{fields}?" if known in _kinds() else ""


def _near(word: object, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there {'are' if len(known) > 1 else 'is'} {', '.join(known)}"
