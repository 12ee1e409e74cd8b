"""TensorBoard: scalars in an event file, with the wall times and steps of the run. tensorboard encodes the records.

TensorBoard takes each directory for a run, and draws runs into the same charts. So each rank of a job has a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, Phase
from gradtui.records.export.formats import tables
from gradtui.records.export.formats.cells import started_at
from gradtui.records.export.formats.new_files import ExportError
from gradtui.records.export.formats.tables import Row, Rows, Table, Value
from gradtui.run.state.series import joint_norm
from gradtui.system.optional_packages import install_words

TABLES = (
    tables.STEPS, tables.METRICS, tables.TIMES, tables.MEMORY, tables.STEP_MEMORY, tables.MACHINE, tables.GROUPS,
    tables.GRADIENT_NORMS,
)  # fmt: skip
"""The tables whose values are scalars."""
_VERSION = "brain.Event:2"
"""The content of the first record: the version of the format, as TensorBoard's reader expects it."""
_TOTALS = {"total": "gradient_norm", "before_clipping": "gradient_norm_before_clipping"}
"""The ends of the tags of norms of the whole model, and their columns."""


def require_tensorboard() -> tuple[Any, Any, Any]:
    """Return the classes of events, summaries and records. Raises ExportError if the package is missing."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise ExportError(
            f"--tensorboard needs the package tensorboard: {install_words('tensorboard', 'tensorboard')}"
        ) from None
    return Event, Summary, RecordWriter


def file_name(began: float) -> str:
    """Return the name of the event file of a run that began at this Unix time. TensorBoard finds files by its beginning."""
    return f"events.out.tfevents.{int(began)}.gradtui"


def write_tensorboard(rows: Rows, header: Mapping[str, Any], folder: Path) -> int:
    """Write the event file of a run into a directory, and those of the ranks of a job into directories in it.

    Args:
        rows: the rows.
        header: the header of the recording.
        folder: an empty directory. Rank 1 of a job has the directory `rank1` in it.

    Returns:
        The number of scalars.

    Raises:
        OSError: a file cannot be written.
    """
    began, own = started_at(header), header.get("rank")
    with ExitStack() as files:

        def opened(place: Path) -> _Scalars:
            place.mkdir(exist_ok=True)
            return _Scalars(files.enter_context(open(place / file_name(began), "xb")), began)

        scalars = {own: opened(folder)}
        for table, row in rows:
            rank = own if row["rank"] is None else row["rank"]
            if rank not in scalars:
                scalars[rank] = opened(folder / f"rank{rank}")
            scalars[rank].take(table, row)
        return sum(each.finish() for each in scalars.values())


class _Scalars:
    """Writes the scalars of one process. It collects the values of one step that come in several rows."""

    def __init__(self, file: BinaryIO, began: float) -> None:
        self._event, self._summary, record_writer = require_tensorboard()
        self._records = record_writer(file)
        self._began = began
        self._count = 0
        self._norms: dict[str, list[float]] = {}
        """By module: the norms of its parameters in the step of `_norms_at`."""
        self._norms_at: tuple[int, float] = (0, 0.0)
        self._memory: dict[str, int] = {}
        """By category: the most bytes at an end of a phase of the step of `_memory_at`."""
        self._memory_at: tuple[int, float] = (0, 0.0)
        self._phases: dict[str, float] = {}
        """Seconds in each phase since the last reported step."""
        self._takers: dict[str, Callable[[Row], None]] = {
            tables.STEPS.name: self._step,
            tables.METRICS.name: self._metric,
            tables.GROUPS.name: self._group,
            tables.GRADIENT_NORMS.name: self._norm,
            tables.MEMORY.name: self._bytes,
            tables.STEP_MEMORY.name: self._step_bytes,
            tables.MACHINE.name: self._machine,
            tables.TIMES.name: self._times,
        }
        self._records.write(self._event(wall_time=began, file_version=_VERSION).SerializeToString())

    def take(self, table: Table, row: Row) -> None:
        """Write the scalars of a row, if it has some."""
        taker = self._takers.get(table.name)
        if taker is not None:
            taker(row)

    def finish(self) -> int:
        """Write what waits for further rows, and return the number of scalars."""
        self._write_norms()
        self._write_memory()
        return self._count

    def _add(self, when: tuple[int, float], scalars: Mapping[str, Value]) -> None:
        values = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items() if value is not None
        ]
        if values:
            self._count += len(values)
            step, seconds = when
            event = self._event(wall_time=self._began + seconds, step=step, summary=self._summary(value=values))
            self._records.write(event.SerializeToString())

    def _step(self, row: Row) -> None:
        # Those of different optimizers cannot be compared.
        name = row["optimizer_name"]
        of = f"/{name}" if name is not None else ""
        norms = {f"gradient_norm/{end}{of}": row[column] for end, column in _TOTALS.items()}
        self._add(_when(row), {f"loss{of}": row["loss"], **norms})

    def _metric(self, row: Row) -> None:
        self._add(_when(row), {f"metrics/{row['metric']}": row["metric_value"]})

    def _group(self, row: Row) -> None:
        tag = f"lr/{row['optimizer']}_{row['optimizer_type'] or 'optimizer'}/group_{row['group']}"
        self._add(_when(row), {tag: row["learning_rate"]})

    def _norm(self, row: Row) -> None:
        if _when(row) != self._norms_at:
            self._write_norms()
            self._norms_at = _when(row)
        module, norm = row["module"], row["gradient_norm"]
        if isinstance(module, str) and isinstance(norm, float):
            self._norms.setdefault(module, []).append(norm)

    def _write_norms(self) -> None:
        norms = {f"gradient_norm/{_module_tag(module)}": joint_norm(norms) for module, norms in self._norms.items()}
        self._add(self._norms_at, norms)
        self._norms.clear()

    def _bytes(self, row: Row) -> None:
        step, seconds = _when(row)
        if step != self._memory_at[0]:
            self._write_memory()
        self._memory_at = step, max(seconds, self._memory_at[1])
        for name in (*MEMORY_CATEGORIES, "total", "peak"):
            value = row[f"{name}_bytes"]
            if isinstance(value, int):
                self._memory[name] = max(value, self._memory.get(name, value))

    def _step_bytes(self, row: Row) -> None:
        names = ("forward", "backward", "optimizer", "peak")
        self._add(_when(row), {f"step_memory/{name}": row[f"{name}_bytes"] for name in names})

    def _write_memory(self) -> None:
        self._add(self._memory_at, {f"memory/{name}": size for name, size in self._memory.items()})
        self._memory.clear()

    def _machine(self, row: Row) -> None:
        values = {name: value for name, value in row.items() if name not in ("rank", "step", "time_s", "device")}
        of = f"cuda:{row['device']}/" if row["device"] is not None else ""
        scalars = {f"machine/{'' if name.startswith('host_') else of}{name}": each for name, each in values.items()}
        self._add(_when(row), scalars)

    def _times(self, row: Row) -> None:
        for phase in Phase:
            value = row[f"{phase}_s"]
            self._phases[phase.value] = self._phases.get(phase.value, 0.0) + (
                value if isinstance(value, float) else 0.0
            )
        steps = row["steps"]
        if isinstance(steps, int) and steps > 0:
            means = {f"phase_time/{name}": spent / steps for name, spent in self._phases.items() if name != "load"}
            self._add(_when(row), {"step_time": row["step_time_s"], **means})
            self._phases.clear()


def _when(row: Row) -> tuple[int, float]:
    step, seconds = row["step"], row["time_s"]
    return (step if isinstance(step, int) else 0), (float(seconds) if isinstance(seconds, (int, float)) else 0.0)


def _module_tag(path: str) -> str:
    """Return the end of the tag of a module: the root's is `(root)`, and none is that of the whole model's norm."""
    return f"{path} (module)" if path in _TOTALS else path or "(root)"
