"""Running statistics that a frozen module would go on collecting, and how they are held still.

A frozen BatchNorm still moves its `running_mean` and `running_var` in every training forward, and normalises by the batch.
While the script's forward or backward runs, what is held is in eval mode, whatever the script's own `train()` has set; as
soon as that call returns, each module has the mode again that it had. So nothing of ours is in the script's objects between
its calls: `training` reads there as the script has set it, and so do copies and pickles. Threads: whichever runs the model.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from torch import nn

from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.protocol.vocabulary import Changed

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "_u", "weight_u")
"""Buffers that a forward in training mode writes: those of the norms, and of both kinds of spectral norm."""


def collects_statistics(module: nn.Module) -> bool:
    """Whether a forward of this module writes running statistics when it is in training mode, and does not in eval mode."""
    buffers = module._buffers  # noqa: SLF001 - only its own
    return bool(buffers) and any(buffers.get(name) is not None for name in _BUFFERS)


class PinnedNormStats:
    """The modules whose running statistics are held."""

    def __init__(self) -> None:
        self.modules: list[weakref.ref[nn.Module]] = []
        """Replaced, never changed: another thread may be reading it."""
        self.forwards = 0
        """How many of the script's forwards they have been held in."""
        self._lock = threading.Lock()
        self._calls = 0
        """How many calls of the script's are running within which the modules are in eval mode."""
        self._set: list[weakref.ref[nn.Module]] = []
        """Those that were in training mode when the first of these calls began."""

    def hold(self, modules: Iterable[nn.Module]) -> None:
        """Hold these too, from the next call on."""
        known = {id(module) for module in self.live()}
        added = [weakref.ref(module) for module in modules if id(module) not in known]
        self.modules = [reference for reference in self.modules if reference() is not None] + added

    def release(self, modules: Iterable[nn.Module]) -> None:
        """Hold these no longer, from the next call on."""
        released = {id(module) for module in modules}
        self.modules = [
            reference
            for reference in self.modules
            if (module := reference()) is not None and id(module) not in released
        ]

    def live(self) -> Iterator[nn.Module]:
        """The modules that are held and alive."""
        return (module for reference in self.modules if (module := reference()) is not None)

    def holds(self, module: nn.Module) -> bool:
        """Whether this module's statistics are held."""
        return any(held is module for held in self.live())

    def enter(self, *, backward: bool = False) -> bool:
        """The script's forward or backward begins. Says that it is to be told of its end by `leave`. Never raises."""
        with self._lock:
            self.forwards += not backward
            self._calls += 1
            if self._calls == 1:
                self._set = [weakref.ref(module) for module in self.live() if _switch(module, training=False)]
        return True

    def leave(self) -> None:
        """It has ended. Never raises."""
        with self._lock:
            self._calls -= 1
            if self._calls:
                return
            modules, self._set = self._set, []
        for reference in modules:
            module = reference()
            if module is not None:
                _switch(module, training=True)


def _switch(module: nn.Module, *, training: bool) -> bool:
    """Set this module's own mode, not its children's; whether that changed it. One that does not allow it is left alone."""
    try:
        if module.training is training:
            return False
        module.training = training
    except Exception:  # noqa: BLE001 - a property or a guard of the script's own
        return False
    return True


def covered(
    tree: ModuleTree,
    named: Collection[int] | None = None,
    *,
    frozen: Collection[int] = (),
    trainable: Collection[int] = (),
) -> Iterator[nn.Module]:
    """The modules that collect statistics and are, or are within, a module all of whose parameters are frozen.

    With `named` only those where at least one of these parameters (by place) is among them. Parameters in `frozen` and
    `trainable` count as such, whatever they are.
    """
    flags = [
        place in frozen or (place not in trainable and (tensor := reference()) is not None and not tensor.requires_grad)
        for place, reference in enumerate(tree.parameter_refs)
    ]
    # How many of the parameters before each place are frozen, and how many are named.
    frozen_before = [0, *accumulate(flags)]
    named_before = [0, *accumulate(named is None or place in named for place in range(len(flags)))]
    whole: list[bool] = []
    for info in tree.modules:
        first, end = info.first_parameter, info.first_parameter + info.subtree_parameters
        own = frozen_before[end] - frozen_before[first] == end - first and named_before[end] > named_before[first]
        # A parent comes before its children.
        whole.append(own or (info.parent >= 0 and whole[info.parent]))
    for place, module in tree.live_modules():
        if whole[place] and collects_statistics(module):
            yield module


def words(modules: Collection[nn.Module], *, held: bool) -> str:
    """What has become of these modules' statistics: `2 BatchNorm1d modules hold their statistics`; empty for none."""
    if not modules:
        return ""
    counts = Counter(type(module).__name__ for module in modules)
    named = [f"{count} {kind}" for kind, count in counts.items()]
    one = len(modules) == 1
    verb = ("holds its" if one else "hold their") if held else ("collects its" if one else "collect their")
    return f"{' and '.join(named)} module{'' if one else 's'} {verb} statistics{'' if held else ' again'}"


def changed_words(changes: Sequence[Changed], find: Callable[[str], nn.Module | None]) -> list[str]:
    """How many parameters each of these changes has toggled, and `words` of each; `find` has the module of a path."""
    counts = [f"{'unfroze' if each.trainable else 'froze'} {len(each.paths)}" for each in changes]
    found = [([module for path in each.statistics if (module := find(path)) is not None], each) for each in changes]
    return [", ".join(counts), *(words(modules, held=not each.trainable) for modules, each in found if modules)]


# Dynamo meets the wrappers around the script's calls; what they call is no part of a program that the script compiles.
leave_to_python(PinnedNormStats.enter, and_all_it_calls=True)
leave_to_python(PinnedNormStats.leave, and_all_it_calls=True)
