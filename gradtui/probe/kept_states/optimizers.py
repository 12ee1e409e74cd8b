"""The copy of an optimizer: its state, the settings and members of its parameter groups, and its own counters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.kept_states.file_contents import FileContents, NotPlainError
from gradtui.probe.kept_states.host_memory import HostMemory
from gradtui.probe.kept_states.values import IncompleteCopyError, KeptTensor, KeptValue

_NOT_OWN = ("param_groups", "state", "defaults")
_COUNTERS = (bool, int, float)


class KeptOptimizer:
    """Raises `IncompleteCopyError` for state that cannot be copied. `indexes` has the index of each tensor by its `id`."""

    def __init__(self, optimizer: Optimizer, memory: HostMemory, indexes: Mapping[int, int]) -> None:
        self._reference = weakref.ref(optimizer)
        self._name = type(optimizer).__name__
        self._members = [[weakref.ref(each) for each in group["params"]] for group in optimizer.param_groups]
        self._settings = [KeptValue(_settings(group), memory) for group in optimizer.param_groups]
        self._state = [(_KeptKey(key), KeptValue(value, memory)) for key, value in optimizer.state.items()]
        self._indexes = [[indexes.get(id(each), -1) for each in group["params"]] for group in optimizer.param_groups]
        self._owners = [indexes.get(id(key), -1) for key in optimizer.state]
        # Wrappers count their steps beside the state: lookahead, gradient accumulation.
        self._loose = [KeptTensor(each, memory) for each in loose_tensors(optimizer, indexes)]
        self._counters = {name: value for name, value in vars(optimizer).items() if _is_counter(name, value)}

    def now(self) -> Optimizer | None:
        """Return the optimizer; None if it is gone."""
        return self._reference()

    def objection(self) -> str | None:
        """Return why the state cannot be written back now; None if it can."""
        optimizer = self._reference()
        if optimizer is None:
            return f"the {self._name} of that step is gone"
        if len(optimizer.param_groups) < len(self._members):
            return f"{self._name} has fewer parameter groups than then"
        if any((tensor := each.now()) is not None and not each.fits(tensor) for each in self._loose):
            return f"a tensor of {self._name} has another shape, type or device than then"
        if any(reference() is None for members in self._members for reference in members):
            return f"parameters that {self._name} had then are gone"
        return None

    def write(self) -> None:
        """Write the state back into the same optimizer. `objection` must have been None."""
        optimizer = self._reference()
        if optimizer is None:
            raise IncompleteCopyError(f"the {self._name} of that step is gone")
        groups = optimizer.param_groups
        del groups[len(self._members) :]
        for group, members, settings in zip(groups, self._members, self._settings):
            group["params"][:] = [each for reference in members if (each := reference()) is not None]
            group.update(settings.written(_settings(group)))
        written = {}
        for kept, value in self._state:
            if (key := kept.now()) is not None:
                written[key] = value.written(optimizer.state.get(key))
        optimizer.state.clear()
        optimizer.state.update(written)
        vars(optimizer).update(self._counters)
        for each in self._loose:
            if (tensor := each.now()) is not None:
                each.write(tensor)

    def put_into(self, file: FileContents, prefix: str, names: Mapping[int, str]) -> dict[str, Any]:
        """Add the tensors of the state to a file, and return what `load_state_dict` takes, with the names of the parameters.

        `names` has the name of each tensor by its index.
        """
        order = {index: at for at, index in enumerate(index for members in self._indexes for index in members)}
        state: dict[Any, Any] = {}
        for at, (owner, (key, value)) in enumerate(zip(self._owners, self._state)):
            name = names.get(owner, f"state {at}")
            place = order.get(owner) if key.is_parameter else key.now()
            try:
                if place is None:
                    raise NotPlainError("of a parameter in no group")
                state[file.value(prefix, place)] = file.value(f"{prefix}/{name}", value.content)
            except NotPlainError as kind:
                file.left_out.append(f"{prefix}/{name} ({kind})")
        groups = [
            {**file.value(f"{prefix}/group {at}", settings.content), "params": [order[index] for index in members]}
            for at, (settings, members) in enumerate(zip(self._settings, self._indexes))
        ]
        return {
            "class": self._name,
            "parameters": [names.get(index, "") for index in order],
            "state": {"$items": [[key, value] for key, value in state.items()]},
            "param_groups": groups,
        }

    def differs(self) -> bool:
        """Return whether the optimizer's values are others than those of the copy."""
        optimizer = self._reference()
        if optimizer is None or len(optimizer.param_groups) != len(self._members):
            return True
        state, groups = optimizer.state, zip(self._settings, optimizer.param_groups)
        entries = [(kept.now(), value) for kept, value in self._state]
        return (
            len(state) != len(entries)
            or any((tensor := each.now()) is not None and not each.is_equal(tensor) for each in self._loose)
            or any(key not in state or value.differs(state[key]) for key, value in entries)
            or any(settings.differs(_settings(group)) for settings, group in groups)
        )


def loose_tensors(optimizer: Optimizer, indexes: Mapping[int, int]) -> Iterator[torch.Tensor]:
    """Yield what an optimizer of the script's own keeps beside its state: tensors, and lists and dictionaries of tensors."""
    own = (value for name, value in vars(optimizer).items() if name not in _NOT_OWN)
    for value in own:
        within = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        for each in within:
            if isinstance(each, torch.Tensor) and id(each) not in indexes:
                yield each


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


class _KeptKey:
    """A key of an optimizer's state: a parameter, or anything else that an optimizer of the script's own has chosen."""

    def __init__(self, key: Any) -> None:
        self._key = weakref.ref(key) if isinstance(key, torch.Tensor) else key

    @property
    def is_parameter(self) -> bool:
        """Whether the key is a parameter."""
        return isinstance(self._key, weakref.ref)

    def now(self) -> Any:
        """Return the key; None if it is a parameter that is gone."""
        return self._key() if isinstance(self._key, weakref.ref) else self._key


def _is_counter(name: str, value: object) -> bool:
    return name not in _NOT_OWN and type(value) in _COUNTERS
