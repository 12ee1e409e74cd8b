"""Read what `gradtui export` has written, by the packages that others read it with.

They are imported late: each process of pytest imports every test file, and pyarrow starts a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_parquet(path: Path, table: str | None = None) -> Any:
    """Return the rows of one of the tables in a Parquet file, or of all."""
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path, filters=[("table", "=", table)] if table is not None else None)


def read_scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Return what TensorBoard reads in a directory: step, wall time and value by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(e.step, e.wall_time, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
