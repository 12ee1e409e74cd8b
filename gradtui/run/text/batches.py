"""Name a batch by its place and its samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.batches import NamedBatch

_SAMPLES = 8
_NAME = 40
_PART = "Subset"
"""A data set whose indices are not those of the data set that it is a part of."""


def batches_text(batches: Sequence[NamedBatch]) -> str:
    """Return `batch 3 of 10 of epoch 1: samples 4, 7`, and the same of the other DataLoaders; empty if no batch is known."""
    return ", with ".join(map(_batch, batches))


def in_brackets(batches: Sequence[NamedBatch]) -> str:
    """Return the same in brackets after a space."""
    return f" ({batches_text(batches)})" if batches else ""


def _batch(batch: NamedBatch) -> str:
    first = batch.number - batch.before
    epoch = f"epoch {batch.epoch:,}" if batch.epoch is not None else "the epoch"
    which = f"batch {batch.number:,}" if not batch.before else f"one of batches {first:,} to {batch.number:,}"
    of = f" of {batch.count:,}" if batch.count is not None else ""
    if batch.is_stream:
        return f"{which}{of} of {epoch}; a stream has no indices"
    return f"{which}{of} of {epoch}{_samples(batch)}"


def _samples(batch: NamedBatch) -> str:
    if not batch.samples:
        return ""
    named = ", ".join(map(str, batch.samples[:_SAMPLES]))
    count = max(batch.sample_count, len(batch.samples))
    more = f", … ({count:,} samples)" if count > _SAMPLES else ""
    of = f" of the {batch.data_set[:_NAME]}" if batch.data_set == _PART else ""
    return f": samples {named}{more}{of}"
