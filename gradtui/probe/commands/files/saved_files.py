"""Save a checkpoint for `torch.load`, or the CUDA allocator's snapshot for PyTorch's memory viewer.

A checkpoint holds a dictionary: `models` by name (`state_dict()` of each), `optimizers` in the order gradtui found them
(`state_dict()` of each), `step` (executed optimizer steps) and `rng` (the random states of torch, of each CUDA device, of
Python and of NumPy). All values are of types that `torch.load(weights_only=True)` reads, as long as those of the script's own
states are. Runs on the training thread, at a step boundary. The snapshot is checked on a simulated device only.
"""

from __future__ import annotations

import os
import pickle
from time import perf_counter
from typing import BinaryIO

import torch

from gradtui.probe.commands.files.named_file import write_named
from gradtui.probe.commands.wrappers import refuse_sharded
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.probe.torch_private.cuda import allocator_snapshot
from gradtui.probe.torch_private.random_states import saved_random_states
from gradtui.run.text import duration_text, refusals, size_text
from gradtui.system.atomic_file import WriteFile

_NO_HISTORY = (
    "it shows what is allocated now, without history or stacks, since the script records none "
    "(torch.cuda.memory._record_memory_history)"
)


def save_checkpoint(
    file: str,
    view: ModelRegistry,
    step: int,
    *,
    directory: str,
    write_file: WriteFile | None,
) -> CommandResult:
    """Write a checkpoint atomically, and return its path, size and how long training was held.

    `file` is the path, relative to `directory` unless absolute; if empty, `write_file` names a new file.

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

    def fill(stream: BinaryIO) -> None:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())

    path = write_named(file, ("checkpoint", ".pt"), fill, directory=directory, write_file=write_file)
    size, seconds = os.path.getsize(path), perf_counter() - began
    held = f"training was paused for {duration_text(seconds)}"
    return CommandResult(f"saved a checkpoint to {path}: {size_text(size)}, {held}", ())


def save_allocator_snapshot(write_file: WriteFile | None) -> CommandResult:
    """Write the snapshot. The script decides whether the allocator records its history; gradtui does not change that.

    Raises:
        CommandRefused: there is no snapshot, or it cannot be written.
    """
    if not torch.cuda.is_initialized():
        raise CommandRefused(refusals.ONLY_ON_CUDA)
    if write_file is None:
        raise CommandRefused(refusals.NO_DIRECTORY)
    snapshot = allocator_snapshot()
    if snapshot is None:
        raise CommandRefused(refusals.TORCH_VERSION)
    try:
        path = write_file("allocator", ".pickle", lambda file: pickle.dump(snapshot, file))
    except OSError as error:
        raise CommandRefused(refusals.not_written("it", error.strerror or error)) from None
    # A trace has entries if `_record_memory_history` is on, or was.
    missing = "" if any(snapshot.get("device_traces") or ()) else f"; {_NO_HISTORY}"
    return CommandResult(
        f"wrote a snapshot of the allocator to {path}, for https://pytorch.org/memory_viz{missing}", ()
    )
