"""Write the tensors of a batch and the random states before it was used, for `torch.load`.

The file holds a dictionary: `batch`, what DataLoaders have yielded, and `arguments`, those of each outermost model call, both
by the places of the tensors; `gone`, the names of tensors whose memory the script has released; `places`, one for each
DataLoader, with the epoch, the number of the batch and the indices of its samples; `step`; `found`, what was found in it;
`rng`, the random states, and `rng_at`, when these were read. All values are of types that `torch.load(weights_only=True)`
reads, and all tensors are on the CPU. Training thread, at a step boundary or before an optimizer's step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch

from gradtui.probe.commands.files.file_writer import FileWriter
from gradtui.probe.gradients import FoundBatch, FoundBatches
from gradtui.probe.memory import BatchTensor
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.protocol.commands import SaveBatch
from gradtui.run.text import batches_text, duration_text, plural, refusals, size_text
from gradtui.system.atomic_file import OWNER_ONLY

_MAX_BYTES = 4 << 30
"""Training is held while the file is written."""


def save_batch(command: SaveBatch, batches: FoundBatches, writer: FileWriter) -> CommandResult:
    """Write the batch that was found last, or the present one. Return what is in the file and how long training was held.

    Raises:
        CommandRefused: no tensor of the batch lives or was recorded, it is too large, or the file cannot be written.
    """
    began = perf_counter()
    batch = batches.newest or batches.present()
    loaded = batch.contents.tensors() if batch.places else []
    state = _state(batch, loaded)
    path, size = writer.write(
        command.file, ("batch", ".pt"), partial(torch.save, state), replace=command.replace, mode=OWNER_ONLY
    )
    seconds = perf_counter() - began
    where = (
        f" ({batches_text([dataclasses.replace(each, samples=()) for each in batch.places])})" if batch.places else ""
    )
    gone = f"; {plural(len(state['gone']), 'other tensor')} is gone" if state["gone"] else ""
    held = f"training was paused for {duration_text(seconds)}"
    count = len({id(each) for found in (state["batch"], *state["arguments"]) for each in found.values()})
    text = (
        f"saved the batch of step {batch.step:,}{where} to {path}: {plural(count, 'tensor')}, {size_text(size)}{gone}"
    )
    return CommandResult(f"{text}; random states {batch.random_at}; {held}", ())


def _state(batch: FoundBatch, loaded: Sequence[BatchTensor]) -> dict[str, Any]:
    every = [*loaded, *(each for call in batch.contents.calls for each in call)]
    if not every:
        raise CommandRefused(refusals.batch_not_recorded(batch.step))
    size = sum({(id(each.storage), each.offset, each.size): each.bytes for each in every}.values())
    if size > _MAX_BYTES:
        raise CommandRefused(refusals.batch_too_large(size_text(size), size_text(_MAX_BYTES)))
    gone: list[str] = []
    # A tensor that a model call was given as the DataLoader yielded it is written once.
    copies: dict[Any, torch.Tensor | None] = {}

    def copied(tensors: Sequence[BatchTensor], prefix: str) -> dict[str, torch.Tensor]:
        found = {}
        for each in tensors:
            key = (id(each.storage), *each[2:])
            copies[key] = copy = copies[key] if key in copies else each.copy()
            if copy is None:
                gone.append(f"{prefix}{each.name}")
            else:
                found[each.name] = copy
        return found

    state = {
        "step": batch.step,
        "found": batch.found,
        "places": [{**dataclasses.asdict(each), "samples": [*each.samples]} for each in batch.places],
        "batch": copied(loaded, "batch "),
        "arguments": [copied(call, f"arguments {number} ") for number, call in enumerate(batch.contents.calls)],
        "gone": gone,
        "rng": dict(batch.random or {}),
        "rng_at": batch.random_at if batch.random is not None else "",
    }
    if len(gone) == len(every):
        raise CommandRefused(refusals.batch_is_gone(batch.step))
    return state
