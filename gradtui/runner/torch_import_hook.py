"""Call a function when the script has imported torch. Until then no part of torch is in the process. Script's thread.

So torch reads at its import (`OMP_NUM_THREADS`, `TORCH_LOGS`, `PYTORCH_CUDA_ALLOC_CONF`) what the script has set, and a script
that never imports torch runs without it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "torch"


def when_torch_is_imported(then: Callable[[], None]) -> TorchImportHook | None:
    """Call `then` once, as soon as this process has imported torch; at once, and return None, if it has already.

    `then` must not raise. It runs on the thread that imports torch.
    """
    if getattr(sys.modules.get(_NAME), "__version__", None) is not None:
        then()
        return None
    arrival = TorchImportHook(then)
    sys.meta_path.insert(0, arrival)
    return arrival


class TorchImportHook(MetaPathFinder):
    """Finds torch as the finders after it do, and wraps its loader in one that reports when torch is loaded.

    It is no finder while torch is imported, which imports a thousand modules.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._owner = os.getpid()
        self._searching = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find torch itself. Leave other modules, and torch in a process that the script forked, to the other finders."""
        if fullname != _NAME or self._searching or os.getpid() != self._owner:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _LoaderWithCallback(spec.loader, self._begins, self._ended)
        return spec

    def forget(self) -> None:
        """Remove this finder from `sys.meta_path`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _begins(self) -> None:
        self._waits = self in sys.meta_path
        self.forget()

    def _ended(self, *, is_loaded: bool) -> None:
        if is_loaded:
            self._then()
        elif self._waits:
            sys.meta_path.insert(0, self)


class _LoaderWithCallback(Loader):
    """Puts the real loader back into the module, lets it load the module, and reports when it has."""

    def __init__(self, loader: Loader, begins: Callable[[], None], ended: Callable[..., None]) -> None:
        self._loader = loader
        self._begins, self._ended = begins, ended

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._begins()
        try:
            self._loader.exec_module(module)
        except BaseException:
            self._ended(is_loaded=False)
            raise
        self._ended(is_loaded=True)


# Python removes its own frames from the traceback of a failed import as long as no other frame is between them:
# `remove_importlib_frames` of CPython's import.c compares the names of files.
_LoaderWithCallback.exec_module.__code__ = _LoaderWithCallback.exec_module.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)
