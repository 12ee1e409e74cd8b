"""The report as a short text in Markdown, for a pull request. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradtui.protocol.summary_changes import Change
from gradtui.protocol.summary_modules import ModuleRow
from gradtui.records.report.contents import Contents, FindingEntry
from gradtui.records.report.metric_contents import MetricContents
from gradtui.records.report.rank_contents import RankContents, rank_cells
from gradtui.run.state.findings import Status
from gradtui.run.text.units import DASH, bounded, count_text, duration_text, plural, sentence, share_words, short_bytes
from gradtui.system.printable import printable

_MAX_ROWS = 30
_MAX_FINDINGS = 20
_MAX_CHANGES = 20
_MAX_LENGTH = 500
_SIGNS = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&])")
_REFERENCES = re.compile(r"(?<=[@#])(?=\w)|(?=://)|(?<=[wW]{3})(?=\.)")
"""After these signs a text would mention a user, refer to an issue or become a link."""
_SEPARATOR = "\u200b"


def markdown_report(contents: Contents) -> str:
    """Return the text. Names and texts of the recording are escaped."""
    return "\n\n".join(_blocks(contents)) + "\n"


def _blocks(contents: Contents) -> Iterator[str]:
    yield f"## gradtui report: {_code(contents.title)}"
    if contents.warnings:
        yield "\n".join(f"> ⚠️ {_text(each)}  " for each in contents.warnings)
    yield _table(
        ("", ""), [(fact.label, f"**{_text(fact.value)}** {_text(fact.note)}".strip()) for fact in contents.facts]
    )
    yield "### Findings"
    yield "\n".join(_finding(each) for each in contents.findings[:_MAX_FINDINGS]) or "None."
    yield from _left_out(len(contents.findings) - _MAX_FINDINGS + contents.findings_omitted, "more finding")
    if contents.ranks is not None:
        yield "### Ranks"
        yield _text(sentence(contents.ranks.outcome))
        yield _ranks(contents.ranks)
        yield from _left_out(len(contents.ranks.ranks) - _MAX_ROWS + contents.ranks.omitted, "more rank")
    yield "### What trains"
    yield _training(contents)
    yield from _left_out(len(contents.table.rows) - _MAX_ROWS + contents.table.omitted, "more row")
    if contents.metrics.rows:
        yield "### Metrics"
        yield _metrics(contents.metrics)
        yield from _left_out(len(contents.metrics.rows) - _MAX_ROWS + contents.metrics.rows_omitted, "more metric")
    if contents.time is not None:
        yield "### Time"
        yield _text(" ".join(filter(None, (contents.time.words, contents.time.verdict, contents.time.speed))))
        yield _table(("part", "share", "time", "median of a step", "95 % within"), contents.time.rows)
        if contents.time.modules:
            yield _table(("module", "type", "forward", "backward", "own", "share"), contents.time.modules)
            yield _text(contents.time.timing)
    if contents.memory.phases:
        yield "### Memory"
        yield _memory(contents)
    if contents.run.changes:
        yield "### Changes"
        rows = [_change(each) for each in contents.run.changes[-_MAX_CHANGES:]]
        yield _table(("step", "change", "receipt"), rows)
        yield from _left_out(len(contents.run.changes) - _MAX_CHANGES + contents.changes_omitted, "earlier change")


def _change(entry: Change) -> tuple[str, ...]:
    results = ", ".join((entry.status, *entry.results))
    return f"{entry.step:,}", _text(entry.words), _text(results)


def _ranks(ranks: RankContents) -> str:
    rows = [(str(each.rank), *map(_text, rank_cells(each))) for each in ranks.ranks[:_MAX_ROWS]]
    return _table(("rank", "end", "steps", "own time of a step", "memory", "gradient norm"), rows)


def _left_out(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield f"_{plural(count, noun)} left out._"


def _finding(entry: FindingEntry) -> str:
    found = entry.finding
    suspected = " (suspected)" if found.status == Status.SUSPECTED else ""
    place = f" ({_code(f'{found.file}:{found.line}')})" if found.file is not None else ""
    ended = f" Until step {found.cleared_step:,}." if found.cleared_step is not None else ""
    words = f"{_text(found.message)}{place}. _{_text(found.remedy)}._{ended}"
    return f"- **{found.level} {_text(found.rule)}**{suspected}: {words}"


def _training(contents: Contents) -> str:
    if not contents.table.rows:
        return "No model was found."
    return _table(
        ("module", "state", "parameters", "why"),
        [_row(row) for row in contents.table.rows[:_MAX_ROWS]],
    )


def _metrics(metrics: MetricContents) -> str:
    rows = [(_code(name), *others) for name, *others in metrics.rows[:_MAX_ROWS]]
    return _table(("metric", "of", "last", "lowest", "highest", "logged by"), rows)


def _row(row: ModuleRow) -> tuple[str, ...]:
    alike = f" ({row.modules:,} alike)" if row.modules > 1 else ""
    several = len(row.states) > 1
    states = ", ".join(f"{each.word} {each.tensors:,}" if several else each.word for each in row.states)
    why = row.why[0] if row.why else ""
    return (
        "&emsp;" * min(row.depth, 8) + _code(row.name) + alike,
        _text(states),
        count_text(row.elements).strip(),
        _text(why),
    )


def _memory(contents: Contents) -> str:
    rows = [
        (
            phase.phase.value,
            duration_text(phase.seconds),
            share_words(phase.share) or DASH,
            short_bytes(phase.total),
            bounded(phase.peak_bound, short_bytes(phase.peak), " ") if phase.peak is not None else DASH,
        )
        for phase in contents.memory.phases
    ]
    return _table(("phase", "time", "of a step", "memory at its end", "highest peak"), rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines)


def _text(words: str) -> str:
    """Escape a text: no markup, no HTML, no mention, no link. A line break would end a row of a table."""
    return _REFERENCES.sub(_SEPARATOR, _SIGNS.sub(r"\\\1", _clean(words)))


def _code(words: str) -> str:
    """Return a text as code, within which GitHub makes no mention and no link. A table splits its row even there at `|`."""
    clean = _clean(words).replace("|", "¦") or DASH
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * (longest + 1)
    space = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{fence}{space}{clean}{space}{fence}"


def _clean(words: str) -> str:
    words = printable(words).encode("utf-8", "replace").decode("utf-8")
    return words if len(words) <= _MAX_LENGTH else f"{words[: _MAX_LENGTH - 1]}…"
