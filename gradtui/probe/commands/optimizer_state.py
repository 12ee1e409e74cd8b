"""What becomes of the optimizer's state of a parameter that is frozen: kept, offloaded to host memory, or dropped.

The state of a parameter that the script gave to its optimizer stays in `optimizer.state` while it is offloaded, so a checkpoint
that the script saves meanwhile has it. An optimizer skips what has no gradient, so it never meets a tensor of the wrong device.
The state of a parameter that a command had added to the optimizer waits in `AddedParameters`. Dropped state is written to an
unnamed temporary file first, so that the command can be taken back to the bit. Training thread only, at a boundary.
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
    """What was done with the state of some parameters."""

    words: str
    """As it goes on after the answer to the freeze, with the bytes; empty where there is no state."""
    take_back: Callable[[], None] | None
    """Puts back what was dropped. Raises `CommandRefused` where it was not kept."""


class _Offloaded(NamedTuple):
    """State of one parameter that waits in host memory."""

    tensor: weakref.ref[torch.Tensor]
    optimizer: weakref.ref[Optimizer]
    devices: dict[str, torch.device]
    """Name of each entry that was moved -> where it was."""


class OptimizerStates:
    """Treats the state of what is frozen, and brings it back."""

    def __init__(self, joined: AddedParameters) -> None:
        self.joined = joined
        """What commands have added to the optimizers."""
        self._offloaded: dict[int, _Offloaded] = {}
        """By id of the parameter."""

    def treat(self, frozen: Iterable[torch.Tensor], optimizers: Iterable[Optimizer], how: str) -> Treated:
        """Do with the state of these parameters what is asked for, one of `TREATMENTS`.

        Raises:
            Refused: `how` is no treatment.
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
        """Move the state of these parameters back to where it was; says which of them had any in host memory.

        Raises whatever the device raises if there is no room: then that parameter's state stays where it is.
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
        """Nobody will ask for it any more: the script is on its own from here."""
        for entry in list(self._offloaded.values()):
            tensor = entry.tensor()
            if tensor is not None:
                with suppress(RuntimeError):
                    self.bring_back([tensor])

    def offloaded(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Those of these parameters whose state waits in host memory."""
        return [tensor for tensor in tensors if self.is_offloaded(tensor)] if self._offloaded else []

    def is_offloaded(self, tensor: torch.Tensor) -> bool:
        """Whether the state of this parameter waits in host memory."""
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
    """What an optimizer holds for one parameter."""

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
        # As `_State.tensors`, without a call for each of what may be thousands.
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
    """Take the state out of the optimizers; how to put it back, with `put`."""
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
        # Our own file, which nobody else can open.
        kept = torch.load(file, weights_only=False)
        for (optimizer_reference, tensor_reference), entries in zip(owners, kept):
            optimizer, tensor = optimizer_reference(), tensor_reference()
            if optimizer is not None and tensor is not None:
                put(optimizer, tensor, entries)

    # Closed by us: Python warns of a file that is left to the garbage collector.
    weakref.finalize(put_back, file.close)
    return put_back
