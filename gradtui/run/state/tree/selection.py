"""Selections in commands: a path, a glob, a regular expression or a preset, and the parameters that it selects. Pure.

The first reading that applies counts:

1. the path of a module or parameter, as the tree has it: `encoder.layers.0`; the empty path is everything;
2. several selections with commas between them: `:head, :norms`. `+` joins them too; an expression extends to ` + ` or to the
   end;
3. `re:` and a regular expression that is searched for in every name of a parameter: `re:^layers\\.[0-3]\\.`
   (`gradtui.run.state.tree.expressions` says which);
4. a preset: `:all`, `:head`, `:norms`, `:biases`, `:norms-and-biases`, `:lora`, `:last-N-blocks`
   (`gradtui.run.state.tree.model_parts` defines them);
5. a glob, as for file names, that a parameter or a module around it matches: `*.bias`, `encoder.layers.[0-3]`.

A tied parameter can be selected by each of its names.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from gradtui.protocol.codec import shown
from gradtui.run.state.tree import expressions, name_search
from gradtui.run.state.tree import model_parts as parts
from gradtui.run.state.tree.model_parts import Listing

NO_MODEL = "there is no model yet"

PRESETS = (":all", ":head", ":norms", ":biases", ":norms-and-biases", ":lora", ":last-N-blocks")

_LAST_BLOCKS = re.compile(r":last-(\d{1,6})-blocks?")
_JOINER, _AFTER_EXPRESSION = re.compile(r"[,+]"), re.compile(r"\s\+\s")
_MAX_PATTERNS = 64
_MAX_COMPARED = 2_000
"""Maximum number of paths compared with an unknown one by `difflib`."""


class NothingSelected(Exception):  # noqa: N818 - it is an answer, not an error
    """A selection matches nothing or cannot be parsed. The message gives the reason and suggests alternatives."""


class Selected(NamedTuple):
    """The parameters that a selection names in a tree."""

    shown: str
    """The path as the tree has it, or the selection as it was written."""
    indices: tuple[int, ...]
    """Indexes of the parameters, in order. Empty only for the path of a module without parameters."""


def find(selection: str, tree: Listing) -> Selected:
    """Return the parameters that a selection names. Raises `NothingSelected`."""
    if not (tree.modules or tree.parameters):
        raise NothingSelected(NO_MODEL)
    # Expressions share what may be spent on the search.
    return _find(
        selection, tree, cache(lambda: name_search.Names([name for info in tree.parameters for name in info.names]))
    )


def _find(selection: str, tree: Listing, names: Callable[[], name_search.Names]) -> Selected:
    known = _by_path(selection, tree)
    if known is not None:
        return known
    wanted = selection.strip()
    written = joined(wanted)
    if len(written) > 1:
        several = tuple(dict.fromkeys(written))
        if sum(map(_is_pattern, several)) > _MAX_PATTERNS:
            raise NothingSelected(f"it has more than {_MAX_PATTERNS} expressions and globs")
        each = [_find(part, tree, names) for part in several if part]
        if not each:
            raise NothingSelected(unknown_path(selection, tree))
        indices = sorted({index for one in each for index in one.indices})
        return Selected(one_selection([one.shown or "the model" for one in each]), tuple(indices))
    if wanted.startswith("re:"):
        return _some(wanted, _by_expression(wanted, tree, names()), tree)
    if wanted.startswith(":"):
        return _some(wanted, _by_preset(wanted, tree), tree)
    if _is_pattern(wanted):
        return _some(wanted, _by_glob(wanted, tree), tree)
    raise NothingSelected(unknown_path(selection, tree))


def joined(selections: str) -> tuple[str, ...]:
    """Return the selections that commas join: `head, *.bias` are two. `+` joins too; after an expression only ` + ` does."""
    found = []
    rest: str | None = selections
    while rest is not None:
        rest = rest.strip()
        joiner = _AFTER_EXPRESSION if rest.startswith("re:") else _JOINER
        part, *after = joiner.split(rest, maxsplit=1)
        found.append(part.strip())
        rest = after[0] if after else None
    return tuple(found)


def one_selection(selections: Sequence[str]) -> str:
    """Return several selections as one, as a command has it."""
    expressions = [each for each in selections if each.startswith("re:")]
    others = [each for each in selections if not each.startswith("re:")]
    return ", ".join([*others, " + ".join(expressions)] if expressions else others)


def objection_to_expressions(selection: str) -> str | None:
    """Return why a regular expression in a selection is invalid, None if all are valid. This check needs no tree."""
    for part in joined(selection):
        if part.startswith("re:"):
            try:
                _expression(part)
            except NothingSelected as nothing:
                return str(nothing)
    return None


def offered(tree: Listing) -> list[Selected]:
    """Return the presets that select something in this tree; of those that select everything, only `:all`."""
    blocks = parts.block_count(tree)
    wanted = [":head", *(f":last-{count}-blocks" for count in (1, 2, 4, 8) if count < blocks)]
    wanted += [":norms", ":biases", ":norms-and-biases", ":lora", ":all"]
    found = []
    for word in wanted:
        indices = _by_preset(word, tree)
        if indices:
            found.append(Selected(word, tuple(sorted(indices))))
    return found


def covering(tree: Listing, indices: Collection[int]) -> list[str]:
    """Return the paths of the largest modules, and of the parameters outside of them, that have exactly these parameters."""
    chosen, names = set(indices), []
    index, end = -1, -1
    for start in sorted(chosen):
        if start < index:
            continue
        if start >= end:
            end = next(stop for stop in range(start + 1, len(tree.parameters) + 1) if stop not in chosen)
        name, index = tree.parameters[start].path, start + 1
        module = tree.parameters[start].module
        while module >= 0 and tree.modules[module].first_parameter == start:
            info = tree.modules[module]
            if start + info.subtree_parameters > end:
                break
            name, index, module = info.path or info.name, start + info.subtree_parameters, info.parent
        names.append(name)
    return names


def unknown_path(path: str, tree: Listing) -> str:
    """Return the message that no module or parameter has this path, with suggestions, or that there is no model yet."""
    if not (tree.modules or tree.parameters):
        return NO_MODEL
    names = {name: None for info in tree.parameters for name in info.names}
    module, _, attribute = path.rpartition(".")
    computed = f"{module}.parametrizations.{attribute}." if module else f"parametrizations.{attribute}."
    originals = [name for name in names if name.startswith(computed)]
    originals += [name for suffix in ("_g", "_v", "_orig") if (name := path + suffix) in names]
    if originals:
        return f"{path} is computed from {' and '.join(originals)}: toggle those instead"
    return f"there is no module or parameter {shown(path)}{_nearest(path, [info.path for info in tree.modules], names)}"


def _nearest(path: str, modules: Iterable[str], names: Iterable[str]) -> str:
    known = [module for module in modules if module] + list(names)
    near = [name for name in known if name.endswith(f".{path}")][:3] if path else []
    near = near or difflib.get_close_matches(path, itertools.islice(known, _MAX_COMPARED))
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _by_path(path: str, tree: Listing) -> Selected | None:
    """Return the path as the tree has it, and the indexes of its parameters, under any of their names."""
    for spelling in spellings(path, tree):
        indices = parts.below(tree, [spelling])
        if any(module.path == spelling for module in tree.modules) or (indices and spelling):
            return Selected(spelling, tuple(sorted(indices)))
    return None


def spellings(path: str, tree: Listing) -> Iterator[str]:
    """Yield the path, and the spellings it has if a model or torch.compile was added or removed since it was written."""
    # The module tree does not list the wrappers of torch.compile.
    plain = ".".join(part for part in path.split(".") if part != "_orig_mod")
    yield plain
    names = [model.name for model in tree.models]
    if len(names) == 1:
        yield "" if plain == names[0] else plain.removeprefix(f"{names[0]}.")
    elif plain:
        yield from (f"{name}.{plain}" for name in names)


def _some(selection: str, indices: set[int], tree: Listing) -> Selected:
    if indices:
        return Selected(selection, tuple(sorted(indices)))
    if selection.startswith(":"):
        raise NothingSelected(f"{selection}: {_ABSENT.get(selection, 'this model has no blocks that are alike')}")
    pattern = selection.removeprefix("re:")
    # Pattern characters are part of no path. The rest of the pattern may be close to one.
    plain = ".".join(part for part in re.sub(r"[*?^$\\()|+]|\[.*?\]", "", pattern).split(".") if part)
    hint = _nearest(
        plain, [info.path for info in tree.modules], (name for info in tree.parameters for name in info.names)
    )
    raise NothingSelected(f"nothing matches {shown(selection)}{hint}")


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
        raise NothingSelected(f"there is no preset {shown(word)}{hint}")
    return _PRESETS[word](tree)


_PRESETS: dict[str, Callable[[Listing], set[int]]] = {
    ":all": lambda tree: set(range(len(tree.parameters))),
    ":head": lambda tree: parts.below(tree, parts.heads(tree)),
    ":norms": parts.norms,
    ":biases": parts.biases,
    ":norms-and-biases": lambda tree: parts.norms(tree) | parts.biases(tree),
    ":lora": parts.lora,
}


def _is_pattern(selection: str) -> bool:
    return selection.startswith("re:") or any(sign in selection for sign in "*?[")


def _by_expression(selection: str, tree: Listing, names: name_search.Names) -> set[int]:
    found = _expression(selection)
    owners = [index for index, info in enumerate(tree.parameters) for _ in info.names]
    try:
        return {index for index, is_found in zip(owners, names.search(found)) if is_found}
    except expressions.BadExpressionError as error:
        raise NothingSelected(f"cannot search for {shown(selection)}: {error}") from None


def _expression(selection: str) -> name_search.Automaton:
    try:
        return name_search.Automaton(expressions.parse(selection.removeprefix("re:").strip()))
    except expressions.BadExpressionError as error:
        raise NothingSelected(f"{shown(selection)} is no regular expression: {error}") from None


def _by_glob(selection: str, tree: Listing) -> set[int]:
    if len(selection) > expressions.MAX_CHARACTERS:
        raise NothingSelected(f"{shown(selection)} has more than {expressions.MAX_CHARACTERS:,} characters")
    matches = re.compile(fnmatch.translate(selection)).match
    found = {index for index, info in enumerate(tree.parameters) if any(map(matches, info.names))}
    for module in tree.modules:
        if module.path and matches(module.path):
            found.update(range(module.first_parameter, module.first_parameter + module.subtree_parameters))
    # A tied parameter is listed once, but its other names lie within other modules.
    for index, info in enumerate(tree.parameters):
        if index not in found and len(info.names) > 1:
            around = (itertools.accumulate(name.split(".")[:-1], "{}.{}".format) for name in info.names)
            if any(map(matches, itertools.chain.from_iterable(around))):
                found.add(index)
    return found
