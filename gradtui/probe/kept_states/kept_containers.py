"""Copies of dictionaries and lists of tensors that the script holds, such as an average of its weights.

Nothing can refer weakly to a dictionary or a list, and a script may put other tensors into it at each step. So a container is
found again by the name by which the script reaches it, and one that has none of these names any more is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from gradtui.probe.kept_states.file_contents import FileContents
from gradtui.probe.kept_states.held_state import Container, items_of, storage_of
from gradtui.probe.kept_states.host_memory import HostMemory
from gradtui.probe.kept_states.values import IncompleteCopyError, KeptTensor


class KeptContainers:
    """Copies the tensors of all containers. `find` returns those of now, each with its name.

    Raises:
        IncompleteCopyError: a tensor has no values in this process.
    """

    def __init__(self, find: Callable[[], Sequence[tuple[str, Container]]], memory: HostMemory) -> None:
        self._find = find
        self._kept: dict[str, dict[Any, KeptTensor]] = {}
        for name, container in find():
            try:
                self._kept[name] = {key: KeptTensor(each, memory) for key, each in items_of(container)}
            except IncompleteCopyError as error:
                raise IncompleteCopyError(f"{name}: {error}") from None

    def write(self, others: Iterable[torch.Tensor]) -> None:
        """Write the values back. `others` are tensors of the run, whose memory a container may have got since."""
        taken = {storage_of(each) for each in others} if self._kept else set()
        for container, kept in self._living():
            now = dict(items_of(container))
            for key, each in kept.items():
                tensor = now.get(key)
                if each.fits(tensor) and storage_of(tensor) not in taken:
                    each.write(now[key])
                elif isinstance(container, dict) or key < len(container):
                    container[key] = each.made()

    def differing(self) -> list[str]:
        """Return which containers differ from the copy, in words; empty if none does."""
        found = []
        for container, kept in self._living():
            now = dict(items_of(container))
            is_list = isinstance(container, list)
            there = [(key, each) for key, each in kept.items() if not is_list or key < len(container)]
            if not all(each.fits(now.get(key)) and each.is_equal(now[key]) for key, each in there):
                found.append(next(name for name, other in self._kept.items() if other is kept))
        return found

    def put_into(self, file: FileContents) -> dict[str, Any]:
        """Add the tensors to a file, and return what stands for them: for each name a list of keys and tensors."""
        return {
            name: {"$items": [[key, file.value(f"container/{name}/{key}", each)] for key, each in kept.items()]}
            for name, kept in self._kept.items()
        }

    def _living(self) -> Iterator[tuple[Container, dict[Any, KeptTensor]]]:
        if not self._kept:
            return
        for name, container in self._find():
            kept = self._kept.get(name)
            if kept is not None:
                yield container, kept
