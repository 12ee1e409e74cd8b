"""The last lines of each script: everything that watching could have changed, in files and on stdout."""

import hashlib
import random
from pathlib import Path

import torch
from torch import nn


def leave(*models: nn.Module) -> None:
    """Save weights, buffers, `.grad` and the states of the generators, and print what a person would compare."""
    digest = hashlib.sha256()
    for number, model in enumerate(models):
        state = {name: tensor.to_dense() if tensor.is_sparse else tensor for name, tensor in model.state_dict().items()}
        torch.save(state, f"weights{number}.pt")
        for parameter in model.parameters():
            digest.update(repr(parameter.grad).encode())
            digest.update(repr((parameter.requires_grad, parameter.is_leaf, parameter._version)).encode())
        for module in model.modules():
            digest.update(repr((module.training, sorted(vars(module)))).encode())
    Path("digest.txt").write_text(digest.hexdigest())
    torch.save(torch.get_rng_state(), "generator.pt")
    print("generators", torch.rand(1).item(), random.random())
    if torch.cuda.is_available():
        print("device memory", torch.cuda.max_memory_allocated())
