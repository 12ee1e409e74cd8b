"""Call a function when the script has imported torch, or other modules. Script's thread.

Until it imports torch, no part of torch is in the process. So torch reads at its import (`OMP_NUM_THREADS`, `TORCH_LOGS`,
`PYTORCH_CUDA_ALLOC_CONF`) what the script has set, and a script that never imports torch runs without it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "torch"


def when_torch_is_imported(then: Callable[[], None]) -> ImportHook | None:
    """Call `then` once, as soon as this process has imported torch; at once, and return None, if it has already.

    `then` must not raise. It runs on the thread that imports torch.
    """
    if getattr(sys.modules.get(_NAME), "__version__", None) is not None:
        then()
        return None

    def arrived(_name: str) -> None:
        arrival.forget()
        then()

    arrival = ImportHook({_NAME}, arrived)
    return arrival


class ImportHook(MetaPathFinder):
    """Finds modules as the finders after it do, and wraps their loaders in ones that report when they are loaded.

    Args:
        names: of the modules.
        then: receives the name of each when it is loaded. It must not raise. It runs on the thread that imports the module.
    """

    def __init__(self, names: Collection[str], then: Callable[[str], None]) -> None:
        self._names, self._then = names, then
        self._owner = os.getpid()
        self._searching = False
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find one of the modules. Leave others, and all in a process that the script forked, to the other finders."""
        if fullname not in self._names or self._searching or os.getpid() != self._owner:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _LoaderWithCallback(spec.loader, lambda: self._then(fullname))
        return spec

    def forget(self) -> None:
        """Remove this finder from `sys.meta_path`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _LoaderWithCallback(Loader):
    """Puts the real loader back into the module, lets it load the module, and reports when it has."""

    def __init__(self, loader: Loader, done: Callable[[], None]) -> None:
        self._loader = loader
        self._done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._done()
