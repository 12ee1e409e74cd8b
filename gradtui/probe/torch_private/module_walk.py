"""Walk through modules, their parameters and their buffers, and run no code of the script.

A class of the script may replace `parameters`, `named_modules` or `__hash__`, and print or draw random numbers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import nn

_Tensor = TypeVar("_Tensor", bound=torch.Tensor)


def modules_of(root: nn.Module) -> Iterator[nn.Module]:
    """Yield the root and all modules in it, each once, as `root.modules()` does, which also makes their names."""
    seen: set[int] = set()
    waiting: list[nn.Module | None] = [root]
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        children = [*module._modules.values()]  # noqa: SLF001 - torch has no public name for it
        children.reverse()
        waiting += children


def named_modules(root: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Module]]:
    """Yield (path, module) as `root.named_modules()` does, but a module within itself only once."""
    # Without `remove_duplicate` it has the modules around the present one. None stands for the end of a module.
    seen: set[int] = set()
    waiting: list[tuple[str, nn.Module | None, int]] = [("", root, id(root))]
    while waiting:
        path, module, key = waiting.pop()
        if module is None:
            seen.discard(key)
            continue
        if key in seen:
            continue
        seen.add(key)
        yield path, module
        if not remove_duplicate:
            waiting.append(("", None, key))
        children = [(_joined(path, name), child, id(child)) for name, child in module._modules.items()]  # noqa: SLF001
        waiting += [each for each in children[::-1] if each[1] is not None]


def named_parameters(root: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield (name, parameter) as `root.named_parameters()` does."""
    return _named_tensors(root, lambda module: module._parameters, remove_duplicate=remove_duplicate)  # noqa: SLF001


def named_buffers(root: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, buffer) as `root.named_buffers()` does."""
    return _named_tensors(root, lambda module: module._buffers, remove_duplicate=remove_duplicate)  # noqa: SLF001


def _named_tensors(
    root: nn.Module, tensors_of: Callable[[nn.Module], Mapping[str, _Tensor | None]], *, remove_duplicate: bool
) -> Iterator[tuple[str, _Tensor]]:
    seen: set[int] = set()
    for path, module in named_modules(root, remove_duplicate=remove_duplicate):
        for name, tensor in tensors_of(module).items():
            if tensor is not None and not (remove_duplicate and id(tensor) in seen):
                seen.add(id(tensor))
                yield _joined(path, name), tensor


def parameters_of(root: nn.Module) -> Iterator[nn.Parameter]:
    """Yield each parameter as `root.parameters()` does."""
    seen: set[int] = set()
    for module in modules_of(root):
        for parameter in module._parameters.values():  # noqa: SLF001 - torch has no public name for it
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def buffers_of(root: nn.Module) -> Iterator[torch.Tensor]:
    """Yield each buffer as `root.buffers()` does."""
    return (buffer for _, buffer in named_buffers(root))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
