"""Find the operations that computed what modules return: where the gradient of a module's output arrives in backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from gradtui.probe.torch_private.private_names import GraphNode


class ModuleOutputs:
    """The outputs of some modules in one graph. It keeps the graph alive: drop it when backward begins."""

    def __init__(self, modules: Container[int], parents: Sequence[int]) -> None:
        """Create it for `modules`; `parents` has the parent index of each module, -1 if there is none."""
        self.operations: defaultdict[GraphNode, dict[int, tuple[int, ...]]] = defaultdict(dict)
        """By operation and number of its output: the modules that return this output to code outside of them."""
        self._modules = modules
        self._parents = parents
        self._left: dict[tuple[int, int], tuple[int, ...]] = {}

    def add(self, node: GraphNode, output: int, maker: int, user: int) -> None:
        """Add an output of an operation of module `maker` that an operation of module `user` takes."""
        if (maker, user) not in self._left:
            around = set(self._around(user))
            self._left[maker, user] = tuple(
                index for index in self._around(maker) if index not in around and index in self._modules
            )
        left = self._left[maker, user]
        if left:
            # Several operations may take one output: the gradient that arrives is the sum of theirs.
            outputs = self.operations[node]
            outputs[output] = tuple(dict.fromkeys((*outputs.get(output, ()), *left)))

    def _around(self, module: int) -> list[int]:
        chain: list[int] = []
        while 0 <= module < len(self._parents):
            chain.append(module)
            module = self._parents[module]
        return chain
