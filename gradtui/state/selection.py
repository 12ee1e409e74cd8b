"""What a command names: a path, a glob, a regular expression or a preset, and the parameters that this means. Pure.

Read in this order; the first reading that fits counts:

1. the path of a module or parameter, as the tree has it: `encoder.layers.0`; the empty path is everything;
2. `re:` and a regular expression that is searched for in every name of a parameter: `re:^layers\\.[0-3]\\.`;
3. several selections with commas between them: `:head, :norms`;
4. a preset: `:all`, `:head`, `:norms`, `:biases`, `:norms-and-biases`, `:lora`, `:last-N-blocks`
   (`gradtui.state.model_parts` says what these are);
5. a glob, as of file names, that a parameter or a module around it matches: `*.bias`, `encoder.layers.[0-3]`.

A tied parameter goes by each of its names.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gradtui.state import model_parts as parts
from gradtui.state.model_parts import Listing

PRESETS = (":all", ":head", ":norms", ":biases", ":norms-and-biases", ":lora", ":last-N-blocks")

_LAST_BLOCKS = re.compile(r":last-(\d+)-blocks?")
_MAX_COMPARED = 2_000
"""Paths that are compared letter by letter with one that is unknown."""


class NothingSelected(Exception):  # noqa: N818 - it is an answer, not an error
    """A selection that names nothing, or that cannot be read; the message says why, and what may have been meant."""


class Selected(NamedTuple):
    """What a selection means in a tree."""

    shown: str
    """The path as the tree has it, or the selection as it was written."""
    places: tuple[int, ...]
    """Places of the parameters, in order. Empty only for a path of something that has none."""


def find(selection: str, tree: Listing) -> Selected:
    """The parameters a selection names. Raises `NothingSelected`."""
    known = _by_path(selection, tree)
    if known is not None:
        return known
    wanted = selection.strip()
    if wanted.startswith("re:"):
        return _some(wanted, _by_expression(wanted, tree), tree)
    if "," in wanted:
        each = [find(part, tree) for part in map(str.strip, wanted.split(",")) if part]
        places = sorted({place for one in each for place in one.places})
        return Selected(", ".join(one.shown or "the model" for one in each), tuple(places))
    if wanted.startswith(":"):
        return _some(wanted, _by_preset(wanted, tree), tree)
    if any(sign in wanted for sign in "*?["):
        return _some(wanted, _by_glob(wanted, tree), tree)
    raise NothingSelected(unknown_path(selection, tree))


def objection_to_expressions(selection: str) -> str | None:
    """Why a regular expression in a selection cannot be read, None where all can: no tree is needed to say so."""
    wanted = selection.strip()
    parts_of_it = [wanted] if wanted.startswith("re:") else [part.strip() for part in wanted.split(",")]
    for part in parts_of_it:
        if part.startswith("re:"):
            try:
                _expression(part)
            except NothingSelected as nothing:
                return str(nothing)
    return None


def offered(tree: Listing) -> list[Selected]:
    """Every preset that names something in this tree, and not everything but by `:all`."""
    blocks = parts.block_count(tree)
    wanted = [":head", *(f":last-{count}-blocks" for count in (1, 2, 4, 8) if count < blocks)]
    wanted += [":norms", ":biases", ":norms-and-biases", ":lora", ":all"]
    found = []
    for word in wanted:
        places = _by_preset(word, tree)
        if places:
            found.append(Selected(word, tuple(sorted(places))))
    return found


def unknown_path(path: str, tree: Listing) -> str:
    """That no module or parameter has this path, and which ones may have been meant."""
    names = {name: None for info in tree.parameters for name in info.names}
    module, _, attribute = path.rpartition(".")
    computed = f"{module}.parametrizations.{attribute}." if module else f"parametrizations.{attribute}."
    originals = [name for name in names if name.startswith(computed)]
    originals += [name for suffix in ("_g", "_v", "_orig") if (name := path + suffix) in names]
    if originals:
        return f"{path} is computed from {' and '.join(originals)}: toggle those instead"
    return f"there is no module or parameter {path!r}{_nearest(path, [info.path for info in tree.modules], names)}"


def _nearest(path: str, modules: Iterable[str], names: Iterable[str]) -> str:
    known = [module for module in modules if module] + list(names)
    near = [name for name in known if name.endswith(f".{path}")][:3] if path else []
    near = near or difflib.get_close_matches(path, itertools.islice(known, _MAX_COMPARED))
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _by_path(path: str, tree: Listing) -> Selected | None:
    """The path as the tree has it, and the places of its parameters, under whichever of their names."""
    for spelling in spellings(path, tree):
        places = parts.below(tree, [spelling])
        if any(module.path == spelling for module in tree.modules) or (places and spelling):
            return Selected(spelling, tuple(sorted(places)))
    return None


def spellings(path: str, tree: Listing) -> Iterator[str]:
    """The path itself, and what it would be called if a model had come or gone, or torch.compile, since it was written."""
    # The wrappers of torch.compile are not listed.
    plain = ".".join(part for part in path.split(".") if part != "_orig_mod")
    yield plain
    names = [model.name for model in tree.models]
    if len(names) == 1:
        yield "" if plain == names[0] else plain.removeprefix(f"{names[0]}.")
    elif plain:
        yield from (f"{name}.{plain}" for name in names)


def _some(selection: str, places: set[int], tree: Listing) -> Selected:
    if places:
        return Selected(selection, tuple(sorted(places)))
    if selection.startswith(":"):
        raise NothingSelected(f"{selection}: {_ABSENT.get(selection, 'this model has no blocks that are alike')}")
    pattern = selection.removeprefix("re:")
    # Signs of a pattern are no part of any path: what is left of it may be close to one.
    plain = ".".join(part for part in re.sub(r"[*?^$\\()|+]|\[.*?\]", "", pattern).split(".") if part)
    hint = _nearest(
        plain, [info.path for info in tree.modules], (name for info in tree.parameters for name in info.names)
    )
    raise NothingSelected(f"nothing matches {selection!r}{hint}")


_ABSENT = {
    ":all": "there is no parameter",
    ":head": "this model has no module that comes after its blocks or is called as a head",
    ":norms": "this model has no norm with parameters",
    ":biases": "this model has no bias",
    ":norms-and-biases": "this model has neither norms nor biases",
    ":lora": "no parameter of this model has lora_ in its path",
}


def _by_preset(word: str, tree: Listing) -> set[int]:
    blocks = _LAST_BLOCKS.fullmatch(word)
    if blocks is not None and int(blocks[1]):
        return parts.below(tree, parts.last_blocks(tree, int(blocks[1])))
    if word not in _PRESETS:
        near = difflib.get_close_matches(word, PRESETS)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(PRESETS)}"
        raise NothingSelected(f"there is no preset {word!r}{hint}")
    return _PRESETS[word](tree)


_PRESETS: dict[str, Callable[[Listing], set[int]]] = {
    ":all": lambda tree: set(range(len(tree.parameters))),
    ":head": lambda tree: parts.below(tree, parts.heads(tree)),
    ":norms": parts.norms,
    ":biases": parts.biases,
    ":norms-and-biases": lambda tree: parts.norms(tree) | parts.biases(tree),
    ":lora": parts.lora,
}


def _by_expression(selection: str, tree: Listing) -> set[int]:
    expression = _expression(selection)
    return {place for place, info in enumerate(tree.parameters) if any(map(expression.search, info.names))}


def _expression(selection: str) -> re.Pattern[str]:
    try:
        return re.compile(selection.removeprefix("re:").strip())
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise NothingSelected(f"{selection!r} is no regular expression: {error}") from None


def _by_glob(selection: str, tree: Listing) -> set[int]:
    matches = re.compile(fnmatch.translate(selection)).match
    found = {place for place, info in enumerate(tree.parameters) if any(map(matches, info.names))}
    for module in tree.modules:
        if module.path and matches(module.path):
            found.update(range(module.first_parameter, module.first_parameter + module.subtree_parameters))
    # What is listed elsewhere because it is tied has other modules around its other names.
    for place, info in enumerate(tree.parameters):
        if place not in found and len(info.names) > 1:
            around = itertools.chain.from_iterable(map(_modules_around, info.names))
            if any(map(matches, around)):
                found.add(place)
    return found


def _modules_around(name: str) -> Iterator[str]:
    return itertools.accumulate(name.split(".")[:-1], lambda before, part: f"{before}.{part}")
