"""What a file of a kept state has: tensors by name, and everything else as JSON that refers to them.

JSON has neither tensors nor tuples, and its keys are texts. An object with one of these keys stands for a value:
`$tensor` for the tensor of that name, `$tuple` for a tuple, `$items` for a dictionary whose keys are not all texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gradtui.probe.kept_states.safetensors_file import has_dtype
from gradtui.probe.kept_states.values import IncompleteCopyError, KeptTensor

VERSION = 1
"""Of the JSON. A later version may have more; it gives what this one has the same place."""
_PLAIN = (type(None), bool, int, float, str)


class NotPlainError(Exception):
    """Raised for a value that has no form in JSON; the message names its type."""


class FileContents:
    """Collects the tensors and the JSON of one file."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        """On the CPU."""
        self.state: dict[str, Any] = {"version": VERSION}
        self.left_out: list[str] = []
        """What the file does not have, in words."""

    def tensor(self, name: str, value: torch.Tensor) -> dict[str, str]:
        """Add a tensor under this name, or one like it if there is such a name; return what stands for it in the JSON.

        Raises:
            IncompleteCopyError: the format has no such tensors.
        """
        if not has_dtype(value):
            kind = str(value.dtype).removeprefix("torch.")
            raise IncompleteCopyError(f"{name} is {kind}, and safetensors has no such numbers")
        while name in self.tensors:
            name += "'"
        self.tensors[name] = value
        return {"$tensor": name}

    def kept(self, name: str, value: KeptTensor) -> dict[str, str]:
        """Add the copy of a tensor. Raises `IncompleteCopyError` if it consists of several."""
        if value.values is None:
            raise IncompleteCopyError(f"{name} is {value.kind}, and safetensors has no such tensors")
        return self.tensor(name, value.values)

    def value(self, name: str, content: object) -> Any:
        """Return the JSON of any value, and add its tensors under names that begin with `name`.

        Entries of dictionaries that have no such form are left out. Raises `NotPlainError` for any other value.
        """
        if isinstance(content, _PLAIN):
            return content
        if isinstance(content, KeptTensor):
            return self.kept(name, content)
        if isinstance(content, torch.Tensor):
            return self.tensor(name, content)
        if isinstance(content, tuple):
            return {"$tuple": self._values(name, content)}
        if isinstance(content, list):
            return self._values(name, content)
        if isinstance(content, Mapping):
            return self._entries(name, content)
        raise NotPlainError(type(content).__name__)

    def _values(self, name: str, content: Iterable[object]) -> list[Any]:
        return [self.value(f"{name}/{at}", each) for at, each in enumerate(content)]

    def _entries(self, name: str, content: Mapping[Any, object]) -> dict[str, Any]:
        found: dict[Any, Any] = {}
        for key, each in content.items():
            try:
                found[key] = self.value(f"{name}/{key}", each)
            except NotPlainError as kind:
                self.left_out.append(f"{name}/{key} ({kind})")
        if all(isinstance(key, str) and not key.startswith("$") for key in found):
            return found
        return {"$items": [[self.value(name, key), value] for key, value in found.items()]}
