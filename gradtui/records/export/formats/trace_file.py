"""Chrome's trace event format, which Perfetto and `chrome://tracing` open: JSON, compressed if the name ends in `.gz`.

The format is that of the document "Trace Event Format": `X` slices, `C` counters, `i` instants and `M` names of tracks, with
times in microseconds. Each rank of a job is a process of the trace. A recording has the sums of the phases over each report (of
about 0.2 s, or of one step if it takes longer). So a slice is a report, and the slices in it are the sums of the phases, in a
fixed order.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from gradtui.protocol.json_text import to_document
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, Phase
from gradtui.records.export.formats import tables
from gradtui.records.export.formats.cells import header_words
from gradtui.records.export.formats.tables import Row, Rows, Table, Value

Entry = dict[str, Any]

_ORDER = (
    Phase.LOAD, Phase.DATA, Phase.ZERO_GRAD, Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.OPTIMIZER, Phase.EVAL,
)  # fmt: skip
"""The order in which the sums of the phases are drawn."""
TABLES = (
    tables.STEPS, tables.TIMES, tables.MEMORY, tables.STEP_MEMORY, tables.MACHINE, tables.PAUSES, tables.EVENTS,
)  # fmt: skip
"""The tables of which a trace has something."""
_RUN, _FIRST_RANK = 1, 2
"""The numbers of processes: that of the run, and that of rank 0 of a job."""
_PHASES, _EVENTS, _PAUSES = 1, 2, 3
_TRACKS = {_PHASES: "phases (sums of each report, in a fixed order)", _EVENTS: "events", _PAUSES: "pauses"}


def write_trace(rows: Rows, header: Mapping[str, Any], path: Path, file: BinaryIO) -> int:
    """Write the trace of a run, and return the number of its entries.

    Args:
        rows: the rows.
        header: the header of the recording, as far as it is known before the first row.
        path: the name of the file decides whether it is compressed.
        file: the file, whose name may be another one.

    Raises:
        OSError: it cannot be written.
    """
    if path.suffix != ".gz":
        return _write(rows, header, file)
    # Without a name and a time the same recording gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
        return _write(rows, header, compressed)


def _write(rows: Rows, header: Mapping[str, Any], file: BinaryIO | gzip.GzipFile) -> int:
    count = 0
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    for entry in _entries(rows, header):
        file.write((b",\n" if count else b"\n") + _encoded(entry))
        count += 1
    file.write(b'\n],"otherData":' + _encoded(header_words(header)) + b"}\n")
    return count


def _encoded(value: Any) -> bytes:
    return to_document(value, is_compact=True).encode()


def _entries(rows: Rows, header: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the entries of all processes. The names of a process come before the first of its other entries."""
    own = header.get("rank")
    yield from _named(_RUN, header_words(header).get("script", "run"))
    known: set[Value] = {None, own}
    for table, row in rows:
        rank = row["rank"]
        process = _RUN if rank in (None, own) or not isinstance(rank, int) else _FIRST_RANK + rank
        if rank not in known:
            known.add(rank)
            yield from _named(process, f"rank {rank}")
        for entry in _of_row(table, row):
            yield {**entry, "pid": process}


def _named(process: int, name: str) -> Iterator[Entry]:
    names = [_entry("M", "process_name", 0, args={"name": name})]
    names.append(_entry("M", "process_sort_index", 0, args={"sort_index": process}))
    for track, what in _TRACKS.items():
        names.append(_entry("M", "thread_name", track, args={"name": what}))
        names.append(_entry("M", "thread_sort_index", track, args={"sort_index": track}))
    for entry in names:
        yield {**entry, "pid": process}


def _entry(kind: str, name: str, track: int, **fields: Any) -> Entry:
    """Return an entry, without the number of its process."""
    return {"ph": kind, "name": name, "tid": track, **fields}


def _of_row(table: Table, row: Row) -> Iterator[Entry]:
    if table is tables.TIMES:
        yield from _report(row)
    elif table is tables.MEMORY:
        within = [each for each in MEMORY_CATEGORIES if each != "offloaded" or not row["offloaded_is_outside_total"]]
        yield from _counter("memory at phase ends (bytes)", row, {each: row[f"{each}_bytes"] for each in within})
        yield from _counter("memory peak (bytes)", row, {"peak": row["peak_bytes"]})
    elif table is tables.STEP_MEMORY:
        ends = ("forward", "backward", "optimizer")
        yield from _counter("memory of each step (bytes)", row, {each: row[f"{each}_bytes"] for each in ends})
        yield from _counter("memory peak of each step (bytes)", row, {"peak": row["peak_bytes"]})
    elif table is tables.MACHINE:
        yield from _counter("host memory (bytes)", row, {"process": row["host_rss_bytes"]})
        names = ("allocated", "reserved", "device_used")
        of = f" of cuda:{row['device']}" if row["device"] is not None else ""
        yield from _counter(f"device memory{of} (bytes)", row, {each: row[f"{each}_bytes"] for each in names})
    elif table is tables.STEPS:
        # Those of different optimizers cannot be compared.
        name = row["optimizer_name"]
        of = f" of {name}" if name is not None else ""
        yield from _counter(f"loss{of}", row, {"loss": row["loss"]})
        yield from _counter(f"gradient norm{of}", row, {"total": row["gradient_norm"]})
        yield from _counter(f"learning rate{of}", row, {"learning rate": row["learning_rate"]})
    elif table is tables.EVENTS:
        about = {"step": row["step"]}
        yield _entry("i", str(row["text"]), _EVENTS, ts=_us(row["time_s"]), s="t", cat=row["kind"], args=about)
    elif table is tables.PAUSES and row["duration_s"] is not None:
        about = {"step": row["step"], "reason": row["reason"]}
        times = {"ts": _us(row["time_s"]), "dur": _us(row["duration_s"])}
        yield _entry("X", "paused", _PAUSES, **times, cat="pause", args=about)


def _us(seconds: Any) -> int:
    """Return a time of a row in whole microseconds. Their sums are exact, so that no slice ends later than what contains it:
    Perfetto drops slices that overlap."""
    return max(0, round(seconds * 1e6)) if isinstance(seconds, (int, float)) and math.isfinite(seconds) else 0


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are known. JSON has neither NaN nor infinities."""
    return {key: value for key, value in values.items() if value is not None and math.isfinite(value)}


def _counter(name: str, row: Row, values: Mapping[str, Any]) -> Iterator[Entry]:
    known = _finite(values)
    if known:
        yield _entry("C", name, 0, ts=_us(row["time_s"]), args=known)


def _report(row: Row) -> Iterator[Entry]:
    """Yield the slice of a report, and those of its phases, which fill it."""
    start, end = _us(row["began_s"]), _us(row["ended_s"])
    # A time that was counted for another phase before is taken from that phase: it is negative then.
    spent = {phase: _us(row[f"{phase}_s"]) for phase in _ORDER}
    total = sum(spent.values())
    if start >= end or not total:
        return
    about = _finite({name: row[name] for name in ("steps", "micro_steps", "skipped_steps", "overhead_s")})
    yield _entry("X", _report_name(row), _PHASES, ts=start, dur=end - start, cat="report", args=about)
    at = start
    for phase, seconds in spent.items():
        lasts = seconds if total <= end - start else seconds * (end - start) // total
        if lasts:
            about = _finite({"seconds": row[f"{phase}_s"]})
            yield _entry("X", phase.value, _PHASES, ts=at, dur=lasts, cat="phase", args=about)
            at += lasts


def _report_name(row: Row) -> str:
    steps, last = row["steps"], row["step"]
    if not isinstance(steps, int) or not isinstance(last, int) or steps < 1:
        return f"after step {last}"
    return f"step {last}" if steps == 1 else f"steps {last - steps + 1}–{last}"
