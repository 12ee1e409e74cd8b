"""Which modules contain a module, by indexes of the listing."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.probe.autograd.module_call_log import OUTSIDE


class ModuleAncestry:
    """The modules around a module. `parents` has the index of the containing module by index; that of a root is OUTSIDE."""

    def __init__(self, parents: Sequence[int]) -> None:
        self._parents = parents

    def around(self, modules: set[int]) -> int:
        """Return the innermost module that contains all of these modules; OUTSIDE if none does."""
        chains = [self._chain(module) for module in modules]
        shared = set.intersection(*(set(chain) for chain in chains))
        return next((module for module in chains[0] if module in shared), OUTSIDE)

    def root(self, module: int) -> int:
        """Return the outermost module that contains this one; the module itself if none does."""
        return self._chain(module)[-2:][0]

    def _chain(self, module: int) -> list[int]:
        chain = [module]
        while 0 <= chain[-1] < len(self._parents):
            chain.append(self._parents[chain[-1]])
        return chain
