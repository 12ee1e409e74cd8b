"""Hold the running statistics of frozen modules, which would otherwise still be updated.

A frozen BatchNorm still updates its `running_mean` and `running_var` in every training forward, and normalises by the batch.
While the script's forward or backward runs, held modules are in eval mode, whatever the script's own `train()` has set. When
that call returns, each module gets its former mode back. So the script's objects are unchanged between its calls: there
`training` reads as the script has set it, and so do copies and pickles. Runs on any thread that runs the model.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from torch import nn

from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python
from gradtui.protocol.freezes import Changed
from gradtui.run.state.tree.running_statistics import BUFFERS, wholly_frozen
from gradtui.run.text.freezes import statistics_words


def collects_statistics(module: nn.Module) -> bool:
    """Return whether a forward of this module writes running statistics in training mode, and does not in eval mode."""
    buffers = module._buffers  # noqa: SLF001 - only its own
    return bool(buffers) and any(buffers.get(name) is not None for name in BUFFERS)


class PinnedNormStats:
    """The modules whose running statistics are held."""

    def __init__(self) -> None:
        self.modules: list[weakref.ref[nn.Module]] = []
        """The list is replaced, never changed in place: another thread may be reading it."""
        self.forwards = 0
        """Number of the script's forwards with held statistics."""
        self._lock = threading.Lock()
        self._calls = 0
        """Number of running calls of the script within which the modules are in eval mode."""
        self._set: list[weakref.ref[nn.Module]] = []
        """Modules that were in training mode when the first of these calls began."""

    def hold(self, modules: Iterable[nn.Module]) -> None:
        """Hold the statistics of these modules too, from the next call on."""
        known = {id(module) for module in self.live()}
        added = [weakref.ref(module) for module in modules if id(module) not in known]
        self.modules = [reference for reference in self.modules if reference() is not None] + added

    def release(self, modules: Iterable[nn.Module]) -> None:
        """Stop holding the statistics of these modules, from the next call on."""
        released = {id(module) for module in modules}
        self.modules = [weakref.ref(module) for module in self.live() if id(module) not in released]

    def live(self) -> list[nn.Module]:
        """Return the modules that are held and alive."""
        return [module for reference in self.modules if (module := reference()) is not None]

    def holds(self, module: nn.Module) -> bool:
        """Return whether this module's statistics are held."""
        return any(held is module for held in self.live())

    # Dynamo traces the wrappers around the script's calls; the functions they call are not part of the compiled program.
    @leave_all_to_python
    def enter(self, *, backward: bool = False) -> bool:
        """Begin a forward or backward of the script. Returns True: `leave` must be called at its end. Never raises."""
        with self._lock:
            self.forwards += not backward
            self._calls += 1
            if self._calls == 1:
                self._set = [weakref.ref(module) for module in self.live() if _switch(module, training=False)]
        return True

    @leave_all_to_python
    def leave(self) -> None:
        """End a forward or backward of the script. Never raises."""
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
    """Set the mode of this module without its children. Return whether it changed; a module that forbids it keeps its mode."""
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
) -> list[nn.Module]:
    """Return the modules that collect statistics and are, or are within, a module whose parameters are all frozen.

    With `named`, only those where at least one of these parameters (by index) is among them. Parameters in `frozen` and
    `trainable` count as such, regardless of their `requires_grad`.
    """
    collecting = [(index, module) for index, module in tree.live_modules() if collects_statistics(module)]
    if not collecting:
        return []
    flags = [
        index in frozen or (index not in trainable and (tensor := reference()) is not None and not tensor.requires_grad)
        for index, reference in enumerate(tree.parameter_refs)
    ]
    whole = wholly_frozen(tree.modules, flags, named)
    return [module for index, module in collecting if whole[index]]


def paths(modules: Collection[nn.Module], tree: ModuleTree) -> tuple[str, ...]:
    """Return the paths of these modules, in the order of the tree."""
    if not modules:
        return ()
    wanted = {id(module) for module in modules}
    return tuple(tree.modules[index].path for index, module in tree.live_modules() if id(module) in wanted)


def words(modules: Collection[nn.Module], *, held: bool) -> str:
    """Return a phrase about these modules' statistics: `2 BatchNorm1d modules hold their statistics`; empty for no modules."""
    if not modules:
        return ""
    return statistics_words(tuple(Counter(type(module).__name__ for module in modules).items()), held=held)


def changed_words(changes: Sequence[Changed], find: Callable[[str], nn.Module | None]) -> list[str]:
    """Return how many parameters each change has toggled, and `words` of each; `find` returns the module of a path."""
    counts = [f"{'unfroze' if each.trainable else 'froze'} {len(each.paths)}" for each in changes]
    found = [([module for path in each.statistics if (module := find(path)) is not None], each) for each in changes]
    return [", ".join(counts), *(words(modules, held=not each.trainable) for modules, each in found if modules)]
