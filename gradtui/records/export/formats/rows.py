"""Read the rows of all tables from a recording, of one process or of all ranks of a job.

The recording of a job has the events of all its ranks. Each rank has a `RunState` of its own here, and rows of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.protocol.events import Event, RankEvent, RankJoined
from gradtui.records.export.formats import tables
from gradtui.records.export.formats.cells import header_words, typed
from gradtui.records.export.formats.closing_rows import closing_rows, parameter_rows, rank_rows
from gradtui.records.export.formats.row_maker import RowMaker
from gradtui.records.export.formats.tables import Row, Rows, Table
from gradtui.records.recording import Recording, tracker_of
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.viewing import view_again

MAX_RANKS = 4_096
"""Ranks whose rows are made. Each has a state of its own, and a damaged recording may name any number of them."""


def rows(recording: Recording, wanted: Sequence[Table] = tables.TABLES) -> Rows:
    """Yield the rows of some tables, in the order in which the recording has them. Those that only its end gives come last.

    Rows of one table and rank are in the order of their steps, except where a reading of a device came late. The times of
    all ranks are those of the viewer's run.
    """
    names = frozenset(table.name for table in wanted)
    for table, row in _Reader(recording, names).rows():
        if table.name in names:
            yield table, typed(table, row)


@dataclass
class _Rank:
    """The state of one rank, and what makes its rows."""

    rank: int
    generation: int
    began: float
    """Seconds of the viewer's run when the rank joined, from which the rank counts its own."""
    state: RunState
    maker: RowMaker


class _Reader:
    """Reads one recording."""

    def __init__(self, recording: Recording, wanted: frozenset[str]) -> None:
        self._recording, self._has_norms = recording, tables.GRADIENT_NORMS.name in wanted
        self._state = RunState()
        self._maker = RowMaker(self._state, has_norms=self._has_norms)
        self._ranks: dict[int, _Rank] = {}
        self._left_out: set[int] = set()
        self._own: object = recording.header.get("rank")
        """The rank whose events are those of the run; None where the run is no rank."""

    def rows(self) -> Rows:
        """Yield all rows, untyped."""
        findings = tracker_of(self._recording)
        for event in self._recording.events():
            view_again(self._state, findings, event)
            of_rank = list(self._rows_of_rank(event))
            seen = {_entry(row) for table, row in of_rank if table is tables.EVENTS}
            yield from of_rank
            # The log of the run has the entries of the shown rank too.
            yield from ((table, row) for table, row in self._rows_of_run(event) if _entry(row) not in seen)
        if self._recording.is_complete:
            findings.run(self._state)
        yield from self._closing_rows()

    @property
    def _is_rank(self) -> bool:
        """Whether the events of the run are those of a rank beside others."""
        return self._state.job is not None and self._state.job.own is not None

    def _rows_of_run(self, event: Event) -> Rows:
        yield from _of_rank(self._own, _readable(self._maker.rows_of(event), self._state, type(event).__name__))

    def _rows_of_rank(self, event: Event) -> Rows:
        if isinstance(event, RankJoined) and event.is_viewers:
            # Its events are those of the run.
            self._own = event.rank
        elif isinstance(event, RankJoined):
            yield from self._ended(self._ranks.pop(event.rank, None))
            self._begin(event.rank, event.generation, event.at)
        elif isinstance(event, RankEvent):
            if event.rank not in self._ranks:
                self._begin(event.rank, event.generation, 0.0)
            rank = self._ranks.get(event.rank)
            if rank is not None and rank.generation == event.generation:
                inner = replace(event.event, at=event.event.at + rank.began)
                yield from _of_rank(rank.rank, _readable(_applied(rank, inner), rank.state, type(inner).__name__))

    def _begin(self, number: int, generation: int, began: float) -> None:
        if len(self._ranks) >= MAX_RANKS:
            self._left_out.add(number)
            return
        state = RunState()
        self._ranks[number] = _Rank(number, generation, began, state, RowMaker(state, has_norms=self._has_norms))

    def _ended(self, rank: _Rank | None) -> Rows:
        if rank is not None:
            yield from _of_rank(rank.rank, rank.maker.waiting_rows())

    def _closing_rows(self) -> Rows:
        yield from _of_rank(self._own, self._maker.waiting_rows())
        for rank in self._ranks.values():
            yield from self._ended(rank)
        for name, words in header_words(self._recording.header).items():
            yield tables.RUN, {"name": name, "value": words}
        for each in self._ranks.values():
            yield from _of_rank(each.rank, _readable(parameter_rows(each.state), each.state, "parameters"))
        if not self._ranks or self._is_rank:
            yield from _of_rank(self._own, _readable(parameter_rows(self._state), self._state, "parameters"))
        for name, made in (*closing_rows(self._state), ("ranks", rank_rows(self._state))):
            yield from _of_rank(self._own, _readable(made, self._state, name))
        if self._left_out:
            yield _note(self._state, f"{len(self._left_out):,} ranks are left out: there are more than {MAX_RANKS:,}")


def _applied(rank: _Rank, event: Event) -> Rows:
    apply(rank.state, event)
    yield from rank.maker.rows_of(event)


def _entry(row: Row) -> tuple[object, ...]:
    return row.get("step"), row.get("kind"), row.get("text")


def _of_rank(rank: object, made: Rows) -> Rows:
    """Yield rows with the rank whose they are; None where the run is no rank."""
    number = rank if type(rank) is int else None
    for table, row in made:
        yield table, {"rank": number, **row}


def _readable(made: Rows, state: RunState, what: str) -> Rows:
    """Yield rows; if a damaged recording has none that can be made, a row of `events` that says so."""
    try:
        yield from list(made)
    except Exception as error:  # noqa: BLE001 - a file is not ours
        yield _note(state, f"{what} is damaged, and left out ({type(error).__name__})")


def _note(state: RunState, text: str) -> tuple[Table, Row]:
    return tables.EVENTS, {"rank": None, "step": state.step, "time_s": state.seconds, "kind": "export", "text": text}
