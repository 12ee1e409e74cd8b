"""What an iterator of a `torch.utils.data.DataLoader` says of its batches, by private names of torch. Any thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradtui.protocol.step_times import LoaderSettings


def data_loader_iterator() -> Any | None:
    """Return the class whose `__next__` every DataLoader iteration calls, None where it is missing."""
    import torch.utils.data.dataloader as dataloader

    return getattr(dataloader, "_BaseDataLoaderIter", None)


def batches_given(iterator: Any) -> int:
    """Return the number of batches that a DataLoader's iterator has yielded."""
    return int(getattr(iterator, "_num_yielded", 0))


def loader_settings(iterator: Any) -> LoaderSettings:
    """Return how the DataLoader of this iterator loads its batches."""
    sampler = getattr(iterator, "_index_sampler", None)
    size = getattr(sampler, "batch_size", None)
    return LoaderSettings(
        int(getattr(iterator, "_num_workers", 0)),
        size if type(size) is int else None,
        bool(getattr(iterator, "_persistent_workers", False)),
    )


def load_like(iterator: Any, data: Any, count: int) -> Iterator[Any]:
    """Yield up to `count` batches of another data set, as the DataLoader of this iterator makes them, in this process.

    Their samples are spread evenly over the data set: data are often sorted by class.
    """
    collate, size = iterator._collate_fn, loader_settings(iterator).batch_size  # noqa: SLF001
    if not getattr(iterator, "_auto_collation", True):
        for at in _spread(min(count, len(data)), len(data)):
            yield collate(data[at])
        return
    if size is None:
        return
    chosen = _spread(min(count, len(data) // size) * size, len(data))
    for first in range(0, len(chosen), size):
        indices = chosen[first : first + size]
        get = getattr(data, "__getitems__", None)
        yield collate(get(indices) if get else [data[at] for at in indices])


def _spread(count: int, size: int) -> list[int]:
    return [at * size // count for at in range(count)]


def batch_number(iterator: Any) -> int | None:
    """Return the number in its epoch, from 1, of the batch whose indices a DataLoader's iterator has just drawn.

    None where batches may be yielded in another order.
    """
    if not getattr(iterator, "_in_order", True):
        return None
    drawn = getattr(iterator, "_send_idx", None)
    return int(drawn if drawn is not None else batches_given(iterator)) + 1


def data_of(iterator: Any) -> object | None:
    """Return the data set of a DataLoader's iterator; None if nothing can refer to it weakly, as to a list."""
    data: object | None = getattr(iterator, "_dataset", None)
    return data if getattr(type(data), "__weakrefoffset__", 0) else None


def shuffling_sampler(iterator: Any) -> str:
    """Return the class of the sampler of a DataLoader's iterator if it is one of torch that shuffles; "" otherwise."""
    sampler = getattr(getattr(iterator, "_index_sampler", None), "sampler", None)
    kind = type(sampler)
    if not kind.__module__.startswith("torch.utils.data.") or kind.__name__ not in _SHUFFLING:
        return ""
    return kind.__name__ if getattr(sampler, "shuffle", True) else ""


_SHUFFLING = ("DistributedSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")


def index_sampler_of(iterator: Any) -> object | None:
    """Return what draws the indices of the batches of a DataLoader's iterator, the same object in all of its epochs.

    None if nothing can refer to it weakly, as to a list.
    """
    sampler: object | None = getattr(iterator, "_index_sampler", None)
    return sampler if getattr(type(sampler), "__weakrefoffset__", 0) else None


def data_set_of(iterator: Any) -> tuple[str, bool]:
    """Return the class of the data set of a DataLoader's iterator, and whether it is a stream, which has no indices."""
    data = getattr(iterator, "_dataset", None)
    kind = getattr(iterator, "_dataset_kind", None)
    return (type(data).__name__ if data is not None else ""), kind is not None and kind == _ITERABLE


_ITERABLE = 1
"""`torch.utils.data.dataloader._DatasetKind.Iterable`."""


def batches_of_epoch(iterator: Any) -> int | None:
    """Return the number of batches of a DataLoader's iterator.

    None where it is unknown or only the script's code can compute it.
    """
    sampler = getattr(iterator, "_index_sampler", None)
    inner = getattr(sampler, "sampler", sampler)
    if not all(type(each).__module__.startswith("torch.utils.data.") for each in (sampler, inner)):
        return None
    try:
        return len(sampler)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - that of the data set is the script's, and a stream has none
        return None
