"""Find the modules that run in compiled code. Training thread."""

from __future__ import annotations

from gradtui.probe.autograd import GraphsOfStep, ModuleCallLog
from gradtui.probe.model import ModuleTree
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.operation_mode import something_is_compiled
from gradtui.protocol.events import CodeCompiled
from gradtui.run.state.tree import model_parts


class CompiledCode:
    """Emits `CodeCompiled` once the process has compiled code, and when other modules run in it."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._reported: tuple[int, ...] | None = None

    def tree_changed(self) -> None:
        """Report the modules again, since they have new indexes."""
        self._reported = None

    def on_step_post(self, tree: ModuleTree, graphs: GraphsOfStep, trace: ModuleCallLog) -> None:
        """Handle a sampled step that has ended: its graphs, and the calls of modules in it."""
        if not something_is_compiled():
            return
        found = tuple(sorted(tree.compiled | _in_functions(tree, graphs, trace)))
        if found != self._reported:
            self._reported = found
            self._emit(CodeCompiled(self._clock.at(), self._counter.steps, found, listing=tree.listing))


def _in_functions(tree: ModuleTree, graphs: GraphsOfStep, trace: ModuleCallLog) -> set[int]:
    """Return the outermost models and blocks that were not called, although the gradient came to their parameters.

    Compiled functions do not call the modules in them. Modules within blocks do not count: one module may read the weight of
    another, as `nn.MultiheadAttention` does with its output projection.
    """
    ran = tree.with_ancestors(trace.grad_modes)
    entered = tree.with_ancestors(graphs.active | {end for _, end in graphs.edges})
    found = {
        each for each in (*(model.root for model in tree.models), *model_parts.blocks(tree)) if each in entered - ran
    }
    known = found | tree.compiled
    return {each for each in found if known.isdisjoint(tree.around(tree.parents[each]))}
