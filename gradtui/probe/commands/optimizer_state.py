"""Keep, offload to host memory, or drop the optimizer state of frozen parameters. Training thread only, at a boundary.

While it is offloaded, the state of a parameter that the script gave to its optimizer stays in `optimizer.state`, so a
checkpoint that the script saves meanwhile has it. An optimizer skips parameters without a gradient, so it never uses a tensor
on the wrong device. The state of a parameter that a command had added to the optimizer is kept in `AddedParameters`. Dropped
state is first written to an unnamed temporary file, so that undo can restore it bit by bit.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.model import AddedParameters
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused
from gradtui.text import size_text

TREATMENTS = ("keep", "offload", "drop")


class Treated(NamedTuple):
    """What was done with the optimizer state of some parameters."""

    words: str
    """Text appended to the answer to the freeze, with the bytes; empty where there is no state."""
    take_back: Callable[[], None] | None
    """Restores the dropped state. Raises `CommandRefused` if it could not be saved."""


class _Offloaded(NamedTuple):
    """Optimizer state of one parameter that is in host memory."""

    tensor: weakref.ref[torch.Tensor]
    optimizer: weakref.ref[Optimizer]
    devices: dict[str, torch.device]
    """Name of each entry that was moved -> its former device."""


class OptimizerStates:
    """Applies a treatment to the optimizer state of frozen parameters, and brings offloaded state back."""

    def __init__(self, joined: AddedParameters) -> None:
        self.joined = joined
        """The parameters that commands have added to the optimizers."""
        self._offloaded: dict[int, _Offloaded] = {}
        """By id of the parameter."""

    def treat(self, frozen: Iterable[torch.Tensor], optimizers: Iterable[Optimizer], how: str) -> Treated:
        """Apply the treatment `how`, one of `TREATMENTS`, to the state of these parameters.

        Raises:
            CommandRefused: `how` is not a treatment.
        """
        if how not in TREATMENTS:
            raise CommandRefused(
                f"there is no way {how!r} to treat an optimizer's state; there are {', '.join(TREATMENTS)}"
            )
        found = list(_states(frozen, optimizers))
        if how == "offload":
            return Treated("".join(self._offload(found)), None)
        words = "".join(_kept(found) if how == "keep" else _dropped(found))
        return Treated(words, _drop(found, self.joined.put) if how == "drop" else None)

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
        freed: dict[tuple[str, str], int] = {}
        for state in found:
            moved = {name: value for name, value in state.tensors.items() if value.device.type != "cpu"}
            there = {name: value.to("cpu") for name, value in moved.items()}
            state.entries.update(there)
            if moved:
                devices = {name: value.device for name, value in moved.items()}
                self._offloaded[id(state.tensor)] = _Offloaded(
                    weakref.ref(state.tensor), weakref.ref(state.optimizer), devices
                )
            for value in moved.values():
                key = (type(state.optimizer).__name__, str(value.device))
                freed[key] = freed.get(key, 0) + value.nbytes
        for (name, device), size in freed.items():
            yield f"; {name}'s state waits in host memory, which frees {size_text(size)} of {device}"
        if found and not freed:
            for name, size in _sizes(found).items():
                yield f"; {name} keeps its {size_text(size)} of state, which is in host memory anyway"


class _State(NamedTuple):
    """The state that an optimizer keeps for one parameter."""

    optimizer: Optimizer
    tensor: torch.Tensor
    entries: dict[str, Any]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            name: value
            for name, value in self.entries.items()
            if isinstance(value, torch.Tensor) and value.layout is torch.strided
        }


def _states(frozen: Iterable[torch.Tensor], optimizers: Iterable[Optimizer]) -> Iterator[_State]:
    owners = membership.owners(optimizers)
    for tensor in frozen:
        if id(tensor) in owners and owners[id(tensor)][0].state:
            optimizer = owners[id(tensor)][0]
            entries = optimizer.state.get(tensor)
            if isinstance(entries, dict) and entries:
                yield _State(optimizer, tensor, entries)


def _sizes(found: Iterable[_State]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for optimizer, _, entries in found:
        name, size = type(optimizer).__name__, 0
        # As `_State.tensors`, without a call for each of possibly thousands of states.
        for value in entries.values():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                size += value.nbytes
        sizes[name] = sizes.get(name, 0) + size
    return {name: size for name, size in sizes.items() if size}


def _kept(found: Iterable[_State]) -> Iterator[str]:
    return (f"; {name} keeps its {size_text(size)} of state" for name, size in _sizes(found).items())


def _dropped(found: Iterable[_State]) -> Iterator[str]:
    return (f"; dropped {name}'s state, which frees {size_text(size)}" for name, size in _sizes(found).items())


def _drop(found: Sequence[_State], put: Callable[[Optimizer, torch.Tensor, Any], None]) -> Callable[[], None]:
    """Delete the state from the optimizers. Return a function that restores it with `put`."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as what may want it
    try:
        torch.save([state.entries for state in found], file)
        reason = None
    except Exception as error:  # noqa: BLE001 - a full disk, or an entry that cannot be pickled
        reason = f"the state that was dropped could not be kept ({type(error).__name__}: {error})"
        file.close()
    owners = [(weakref.ref(state.optimizer), weakref.ref(state.tensor)) for state in found]
    for state in found:
        del state.optimizer.state[state.tensor]

    def put_back() -> None:
        if reason is not None:
            raise CommandRefused(reason)
        file.seek(0)
        # gradtui's own file, which no other process can open.
        kept = torch.load(file, weights_only=False)
        for (optimizer_reference, tensor_reference), entries in zip(owners, kept):
            optimizer, tensor = optimizer_reference(), tensor_reference()
            if optimizer is not None and tensor is not None:
                put(optimizer, tensor, entries)

    # Closed explicitly: Python warns about a file that is left to the garbage collector.
    weakref.finalize(put_back, file.close)
    return put_back
