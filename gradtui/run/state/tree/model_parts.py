"""Find the well-known parts of a model: its head, its blocks, norms, biases and LoRA matrices. Pure.

Only the module tree decides, that is paths, types and order of registration:

- *blocks*: the longest list of at least two siblings of one type that have parameters and whose names differ only in the
  trailing number (`layers.0`, `blocks.3`, `layer4`, `fc2`), outermost first: a list within a block is part of that block. Of
  equally long lists the later one counts.
- *head*: the shallowest modules outside the blocks with a usual name of a head (`HEAD_NAMES`). If there is none, the last
  module after the blocks that has parameters of its own and is no norm; if the blocks come last and are single layers (a
  plain MLP), the last of them; if there are no blocks, the last such module of the model. A model may have none.
- *norms*: parameters of modules whose type name ends like that of a norm. *Biases*: parameters of that name, those of norms
  included. *LoRA*: parameters with `lora_` in their path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from gradtui.protocol.vocabulary import ModelInfo, ModuleInfo, ParameterInfo

HEAD_NAMES = frozenset(
    {"head", "heads", "classifier", "fc", "lm_head", "embed_out", "score", "cls", "qa_outputs", "mlm_head"}
)

_NUMBERED = re.compile(r"(.*?)(\d+)")
_NORM_TYPE = re.compile(r"norm\w{0,4}", re.IGNORECASE)
_BIAS_NAME = re.compile(r"(?:.*_)?bias(?:_.*)?")
_LORA = re.compile(r"(?:^|[._])lora[._]")


class Listing(Protocol):
    """A list of models with their modules and parameters, as the probe and the screen have it."""

    @property
    def models(self) -> Sequence[ModelInfo]: ...

    @property
    def modules(self) -> Sequence[ModuleInfo]: ...

    @property
    def parameters(self) -> Sequence[ParameterInfo]: ...


def within(path: str, around: str) -> bool:
    """Return whether `path` is `around` or below it; every path is below the empty one."""
    return not around or path == around or path.startswith(f"{around}.")


def below(tree: Listing, paths: Sequence[str]) -> set[int]:
    """Return the indexes of the parameters with a name at or below one of these paths."""
    if "" in paths:
        return set(range(len(tree.parameters)))
    starts = tuple([f"{path}." for path in paths])
    return {
        index
        for index, info in enumerate(tree.parameters)
        for name in info.names
        if name.startswith(starts) or name in paths
    }


def heads(tree: Listing) -> list[str]:
    """Return the paths of the head of each model; none for a model without a head."""
    return [path for model in tree.models for path in _head(tree, model)]


def last_blocks(tree: Listing, count: int) -> list[str]:
    """Return the paths of the last `count` blocks of each model, all of them if it has fewer."""
    chosen = [blocks_within(tree, model.root) for model in tree.models]
    return [tree.modules[index].path for blocks in chosen for index in blocks[-count:]] if count > 0 else []


def blocks(tree: Listing) -> list[int]:
    """Return the indexes of the blocks of each model, in order."""
    return [index for model in tree.models for index in blocks_within(tree, model.root)]


def blocks_within(tree: Listing, module: int) -> list[int]:
    """Return the indexes of the blocks within a module, in order."""
    longest: list[int] = []
    waiting = [module]
    while waiting:
        parent = waiting.pop(0)
        within = list(children(tree, parent))
        listed = [group for group in _alike(tree, within) if len(group) > 1]
        for group in listed:
            if len(group) >= len(longest):
                longest = group
        blocks = {index for group in listed for index in group}
        waiting += [child for child in within if child not in blocks]
    return longest


def block_count(tree: Listing) -> int:
    """Return the number of blocks of the model with the most blocks; 0 if no model has any."""
    return max((len(blocks_within(tree, model.root)) for model in tree.models), default=0)


def norms(tree: Listing) -> set[int]:
    """Return the indexes of the parameters of norms."""
    return {index for module in tree.modules if is_norm(module) for index in _own(module)}


def biases(tree: Listing) -> set[int]:
    """Return the indexes of the biases."""
    return {
        index
        for index, info in enumerate(tree.parameters)
        if any(_BIAS_NAME.fullmatch(name.rpartition(".")[2]) for name in info.names)
    }


def lora(tree: Listing) -> set[int]:
    """Return the indexes of the matrices of low-rank adapters, as PEFT and others name them."""
    return {index for index, info in enumerate(tree.parameters) if any(map(_LORA.search, info.names))}


def is_norm(module: ModuleInfo) -> bool:
    """Return whether the module's type has the name of a norm (BatchNorm2d, LlamaRMSNorm)."""
    return any(match.end() == len(module.type_name) for match in _NORM_TYPE.finditer(module.type_name))


def _own(module: ModuleInfo) -> range:
    return range(module.first_parameter, module.first_parameter + module.own_parameters)


def _subtree(tree: Listing, root: int) -> range:
    return range(root, root + tree.modules[root].subtree_modules)


def children(tree: Listing, parent: int) -> Iterator[int]:
    """Yield the indexes of the direct submodules of a module."""
    index = parent + 1
    while index < parent + tree.modules[parent].subtree_modules:
        yield index
        index += tree.modules[index].subtree_modules


def _alike(tree: Listing, modules: Sequence[int]) -> list[list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for index in modules:
        module = tree.modules[index]
        numbered = _NUMBERED.fullmatch(module.name)
        if numbered is not None and module.subtree_parameters:
            groups.setdefault((module.type_name, numbered[1]), []).append(index)
    return list(groups.values())


def _head(tree: Listing, model: ModelInfo) -> list[str]:
    blocks = blocks_within(tree, model.root)
    inside = {index for block in blocks for index in _subtree(tree, block)}
    outside = [index for index in _subtree(tree, model.root) if index not in inside and index != model.root]
    called = [index for index in outside if tree.modules[index].name in HEAD_NAMES]
    called = [index for index in called if below(tree, [tree.modules[index].path])]
    if called:
        shallowest = min(tree.modules[index].depth for index in called)
        return [tree.modules[index].path for index in called if tree.modules[index].depth == shallowest]
    last = _last_after(tree, blocks[-1], inside) if blocks else _last_layer(tree, outside)
    if last is None and blocks and tree.modules[blocks[-1]].subtree_modules == 1:
        last = blocks[-1]
    return [tree.modules[last].path] if last is not None else []


def _last_after(tree: Listing, block: int, inside: set[int]) -> int | None:
    """Return the last layer after the blocks, in the nearest enclosing module that has one."""
    around = tree.modules[block].parent
    while around >= 0:
        after = [index for index in _subtree(tree, around) if index > block and index not in inside]
        last = _last_layer(tree, after)
        if last is not None:
            return last
        around = tree.modules[around].parent
    return None


def _last_layer(tree: Listing, indices: Sequence[int]) -> int | None:
    layers = [index for index in indices if tree.modules[index].own_parameters and not is_norm(tree.modules[index])]
    return layers[-1] if layers else None
