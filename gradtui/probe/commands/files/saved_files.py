"""Save a checkpoint for `torch.load`, or the CUDA allocator's snapshot for PyTorch's memory viewer.

A checkpoint holds a dictionary: `models` by name (`state_dict()` of each), `optimizers` in the order gradtui found them
(`state_dict()` of each), `step` (executed optimizer steps) and `rng` (the random states of torch, of each CUDA device, of
Python and of NumPy). All values are of types that `torch.load(weights_only=True)` reads, as long as those of the script's own
states are. Runs on the training thread, at a step boundary. The snapshot is checked on a simulated device only.
"""

from __future__ import annotations

import pickle
from functools import partial
from time import perf_counter

import torch

from gradtui.probe.commands.files.file_writer import FileWriter
from gradtui.probe.commands.wrappers import refuse_sharded
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.probe.torch_private.cuda import allocator_snapshot
from gradtui.probe.torch_private.random_states import saved_random_states
from gradtui.run.text import duration_text, refusals, size_text

_NO_HISTORY = (
    "it shows what is allocated now, without history or stacks, since the script records none "
    "(torch.cuda.memory._record_memory_history)"
)


def save_checkpoint(file: str, view: ModelRegistry, step: int, writer: FileWriter) -> CommandResult:
    """Write a checkpoint to this path, or to a new one if it is empty. Return path, size and how long training was held.

    Raises:
        CommandRefused: there is no model to save, all ranks must take part, or the file could not be written.
    """
    tree = view.tree
    refuse_sharded(tree)
    models = {model.name or "model": module for model in tree.models if (module := tree.module_refs[model.root]())}
    if not models:
        raise CommandRefused(refusals.NO_MODEL)
    began = perf_counter()
    state = {
        "models": {name: module.state_dict() for name, module in models.items()},
        "optimizers": [optimizer.state_dict() for optimizer in view.live_optimizers()],
        "step": step,
        "rng": saved_random_states(),
    }
    path, size = writer.write(file, ("checkpoint", ".pt"), partial(torch.save, state))
    held = f"training was paused for {duration_text(perf_counter() - began)}"
    return CommandResult(f"saved a checkpoint to {path}: {size_text(size)}, {held}", ())


def save_allocator_snapshot(writer: FileWriter) -> CommandResult:
    """Write the snapshot. The script decides whether the allocator records its history; gradtui does not change that.

    Raises:
        CommandRefused: there is no snapshot, or it cannot be written.
    """
    if not torch.cuda.is_initialized():
        raise CommandRefused(refusals.ONLY_ON_CUDA)
    if writer.create is None:
        raise CommandRefused(refusals.NO_DIRECTORY)
    snapshot = allocator_snapshot()
    if snapshot is None:
        raise CommandRefused(refusals.TORCH_VERSION)
    path, _ = writer.write("", ("allocator", ".pickle"), partial(pickle.dump, snapshot))
    # A trace has entries if `_record_memory_history` is on, or was.
    missing = "" if any(snapshot.get("device_traces") or ()) else f"; {_NO_HISTORY}"
    return CommandResult(
        f"wrote a snapshot of the allocator to {path}, for https://pytorch.org/memory_viz{missing}", ()
    )
