"""Where gradtui hooks into PyTorch.

This package owns the wrappers around module calls, backward, optimizers, data loaders and CUDA graphs. They call
`Probe`.
"""

from gradtui.probe.hooks import cuda_graphs, torch_hooks
from gradtui.probe.hooks.cuda_graphs import CapturedWork, CudaGraphs

__all__ = [
    "CapturedWork",
    "CudaGraphs",
    "cuda_graphs",
    "torch_hooks",
]
