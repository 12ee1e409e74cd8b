"""Batches by their place: which one of which epoch, and which samples it has."""

from __future__ import annotations

from gradtui.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """A batch that a DataLoader has yielded, of the loader's own data set.

    In a job the loader, and so the place, is that of one rank.
    """

    number: int
    """Its place in its epoch, from 1."""
    count: int | None = None
    """The number of batches of an epoch; None where it is unknown."""
    epoch: int | None = None
    """The number of that epoch, from 1."""
    before: int = 0
    """The number of batches before it that may be meant as well, since gradients accumulate over several."""
    samples: tuple[int, ...] = ()
    """The first indices of its samples; empty where they are unknown."""
    sample_count: int = 0
    """How many samples it has; 0 where it is unknown."""
    data_set: str = ""
    """The class of the data set that has these indices, such as `Subset`; empty where it is unknown."""
    is_stream: bool = False
    """The data set is an `IterableDataset`, which has no indices."""
