"""Keep, offload to host memory, or drop the optimizer state of frozen parameters. Training thread only, at a boundary.

While it is offloaded, the state of a parameter that the script gave to its optimizer stays in `optimizer.state`, so a
checkpoint that the script saves meanwhile has it. An optimizer skips parameters without a gradient, so it never uses a tensor
on the wrong device. The state of a parameter that a command had added to the optimizer is kept in `AddedParameters`. Dropped
state is first written to an unnamed temporary file, so that undo can restore it bit by bit.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.model import AddedParameters, ModelRegistry, Owners, direct_tensors
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused
from gradtui.protocol.vocabulary import ExtendedOptimizer
from gradtui.run.text import refusals, size_text

Restore = Callable[[], None]
"""Restores dropped state. Raises `CommandRefused` if it could not be saved."""

_State = tuple[Optimizer, torch.Tensor, dict[str, Any]]
"""An optimizer, a parameter, and the state that the optimizer keeps for it."""


class _Offloaded(NamedTuple):
    tensor: weakref.ref[torch.Tensor]
    optimizer: weakref.ref[Optimizer]
    devices: dict[str, torch.device]
    """Name of each entry that was moved -> its former device."""


class OptimizerStates:
    """Keeps, offloads or drops the optimizer state of frozen parameters, and brings offloaded state back."""

    def __init__(self, joined: AddedParameters) -> None:
        self.joined = joined
        """The parameters that commands have added to the optimizers."""
        self._offloaded: dict[int, _Offloaded] = {}
        """By id of the parameter."""

    def apply(self, how: str, frozen: Iterable[torch.Tensor], owners: Owners) -> tuple[str, Restore | None]:
        """Keep, offload or drop the state of these parameters, as `how` says.

        Return a continuation of the answer to the freeze, with the bytes (empty where there is no state), and a function that
        restores what was dropped.
        """
        found = list(_states(frozen, owners))
        if how == "offload":
            return "".join(self._offload(found)), None
        sizes = _sizes(found).items()
        if how == "keep":
            return "".join(f"; {name} keeps its {size_text(size)} of state" for name, size in sizes), None
        words = "".join(f"; dropped {name}'s state, which frees {size_text(size)}" for name, size in sizes)
        return words, _drop(found, self.joined.put)

    def to_move(self, how: str, frozen: Iterable[torch.Tensor], owners: Owners) -> list[torch.Tensor]:
        """Return those of these parameters whose state can be offloaded, or with `how` "drop" dropped."""
        found = [(tensor, entries) for _, tensor, entries in _states(frozen, owners)]
        if how == "offload":
            found = [
                each for each in found if any(value.device.type != "cpu" for value in direct_tensors(each[1]).values())
            ]
        return [tensor for tensor, _ in found]

    def bring_back(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Move the state of these parameters back to its device. Return the parameters whose state was in host memory.

        Raises whatever the device raises if it lacks memory. Then that parameter's state stays in host memory.
        """
        back = []
        for tensor in self.offloaded(tensors):
            entry = self._offloaded[id(tensor)]
            optimizer = entry.optimizer()
            state = self.joined.state(optimizer, tensor) if optimizer is not None else None
            if isinstance(state, dict):
                # All or nothing: a parameter with half of its state on another device could not be trained.
                state.update({name: state[name].to(device) for name, device in entry.devices.items() if name in state})
            del self._offloaded[id(tensor)]
            back.append(tensor)
        return back

    def bring_all_back(self) -> None:
        """Bring back all state that can be, since gradtui detaches from the script."""
        for entry in list(self._offloaded.values()):
            tensor = entry.tensor()
            if tensor is not None:
                with suppress(RuntimeError):
                    self.bring_back([tensor])

    def offloaded(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Return those of these parameters whose state is in host memory."""
        return [tensor for tensor in tensors if self.is_offloaded(tensor)] if self._offloaded else []

    def is_offloaded(self, tensor: torch.Tensor) -> bool:
        """Return whether the state of this parameter is in host memory."""
        entry = self._offloaded.get(id(tensor))
        return entry is not None and entry.tensor() is tensor

    def _offload(self, found: Sequence[_State]) -> Iterator[str]:
        freed: Counter[tuple[str, str]] = Counter()
        for optimizer, tensor, entries in found:
            moved = {name: value for name, value in direct_tensors(entries).items() if value.device.type != "cpu"}
            entries.update({name: value.to("cpu") for name, value in moved.items()})
            if moved:
                devices = {name: value.device for name, value in moved.items()}
                self._offloaded[id(tensor)] = _Offloaded(weakref.ref(tensor), weakref.ref(optimizer), devices)
            for value in moved.values():
                freed[type(optimizer).__name__, str(value.device)] += value.nbytes
        for (name, device), size in freed.items():
            yield f"; {name}'s state waits in host memory, which frees {size_text(size)} of {device}"
        if found and not freed:
            for name, size in _sizes(found).items():
                yield f"; {name} keeps its {size_text(size)} of state, which is in host memory anyway"


def _states(frozen: Iterable[torch.Tensor], owners: Owners) -> Iterator[_State]:
    for tensor in frozen:
        optimizer, _ = owners.get(id(tensor), (None, None))
        # Of an empty state no tensor is asked for its hash, which a subclass may define.
        entries = optimizer.state.get(tensor) if optimizer is not None and optimizer.state else None
        if optimizer is not None and isinstance(entries, dict) and entries:
            yield optimizer, tensor, entries


def _sizes(found: Iterable[_State]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for optimizer, _, entries in found:
        sizes[type(optimizer).__name__] += sum(value.nbytes for value in direct_tensors(entries).values())
    return +sizes


def _drop(found: Sequence[_State], put: Callable[[Optimizer, torch.Tensor, Any], None]) -> Restore:
    """Delete the state from the optimizers. Return a function that restores it with `put`."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as what may want it
    try:
        torch.save([entries for _, _, entries in found], file)
        reason = None
    except Exception as error:  # noqa: BLE001 - a full disk, or an entry that cannot be pickled
        reason = refusals.state_not_saved(error)
        file.close()
    owners = [(weakref.ref(optimizer), weakref.ref(tensor)) for optimizer, tensor, _ in found]
    for optimizer, tensor, _ in found:
        del optimizer.state[tensor]

    def put_back() -> None:
        if reason is not None:
            raise CommandRefused(reason)
        file.seek(0)
        # gradtui's own file, which no other process can open.
        kept = torch.load(file, weights_only=False)
        for (optimizer, tensor), entries in zip(owners, kept):
            owner, parameter = optimizer(), tensor()
            if owner is not None and parameter is not None:
                put(owner, parameter, entries)

    # Closed explicitly: Python warns about a file that is left to the garbage collector.
    weakref.finalize(put_back, file.close)
    return put_back


def additions(view: ModelRegistry) -> tuple[tuple[ExtendedOptimizer, ...], tuple[str, ...]]:
    """Return the optimizers with the parameters that commands have added, and those taken out after they had trained."""
    joined = view.joined
    if not joined:
        return (), ()

    def paths(tensors: list[torch.Tensor]) -> tuple[str, ...]:
        return tuple(
            view.tree.parameters[index].path for tensor in tensors if (index := view.tree.owns(tensor)) is not None
        )

    extended, listed = [], set[int]()
    for optimizer in view.live_optimizers():
        owned = {id(tensor) for tensor in membership.parameters(optimizer)}
        added = [tensor for tensor in joined.inside() if id(tensor) in owned]
        # Optimizers that share their groups are reported once.
        if added and not listed.intersection(map(id, added)):
            extended.append(ExtendedOptimizer(type(optimizer).__name__, len(owned) - len(added), paths(added)))
        listed.update(map(id, added))
    return tuple(extended), paths(joined.trained_outside())
