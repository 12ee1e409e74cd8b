"""Where gradtui hooks into PyTorch.

This package owns the wrappers around module calls, backward, optimizers, data loaders and CUDA graphs. They call `Probe`.
"""

from gradtui.probe.gradients import clipping
from gradtui.probe.hooks import cuda_graphs, script_calls, torch_hooks
from gradtui.probe.probe import Probe


def install(probe: Probe) -> None:
    """Install every hook; `probe.detach()` removes them."""
    torch_hooks.install(probe)
    clipping.install(probe.hooks, probe.norms.clippings, probe.parts.order, probe.buffer, probe.norms.effects)
    cuda_graphs.install(probe.hooks, probe.graphs)
    script_calls.install(probe.parts)


__all__ = ["install"]
