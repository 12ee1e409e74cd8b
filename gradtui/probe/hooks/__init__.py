"""Where gradtui hooks into PyTorch.

This package owns the wrappers around module calls, backward, optimizers, data loaders, CUDA graphs, loggers and what writes
checkpoints.
They call `Probe`.
"""

from gradtui.probe.gradients import clipping
from gradtui.probe.hooks import cuda_graphs, script_calls, torch_hooks
from gradtui.probe.hooks.checkpoint_libraries import CheckpointLibraries
from gradtui.probe.hooks.loggers import LoggerHooks
from gradtui.probe.probe import Probe


def install(probe: Probe) -> None:
    """Install every hook; `probe.detach()` removes them."""
    torch_hooks.install(probe)
    clipping.install(probe.hooks, probe.norms.clippings, probe.parts.order, probe.buffer, probe.norms.effects)
    cuda_graphs.install(probe.hooks, probe.graphs)
    script_calls.install(probe.parts)
    loggers, libraries = LoggerHooks(probe.hooks, probe.parts.metrics), CheckpointLibraries(probe.parts)

    def look() -> None:
        loggers.look()
        libraries.look()

    probe.parts.look_for_libraries = look
    look()


__all__ = ["install"]
