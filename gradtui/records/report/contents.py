"""What a report says about a run, as plain data. Pure."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import Finding, Model, RunSummary
from gradtui.protocol.summary_modules import ModuleTable
from gradtui.protocol.vocabulary import ParameterState
from gradtui.records.export.rule_pages import rule_page
from gradtui.records.report.curves import Curve
from gradtui.records.report.memory_contents import MemoryContents, memory_contents
from gradtui.records.report.metric_contents import MetricContents, metric_contents
from gradtui.records.report.rank_contents import RankContents, rank_contents
from gradtui.records.report.recorded_run import RecordedRun
from gradtui.records.report.run_series import RunSeries
from gradtui.records.report.time_contents import TimeContents, time_contents
from gradtui.run.diagnostics import all_rules
from gradtui.run.state.findings import LEVELS, EvidenceValue
from gradtui.run.text.explanation.states import state_counts
from gradtui.run.text.memory import when_words
from gradtui.run.text.models import unregistered_lines
from gradtui.run.text.units import (
    DASH,
    bounded,
    count_text,
    duration_text,
    number_text,
    plural,
    seconds_text,
    sentence,
    short_bytes,
)

MAX_FINDINGS = 100
_MAX_PATHS = 20
_MODELS = 8


@dataclass(frozen=True)
class Fact:
    """A figure of the run: a label, a value, and a further clause."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class StateRow:
    """The number of tensors in a state, and what the state means."""

    state: ParameterState
    count: str
    meaning: str


@dataclass(frozen=True)
class FindingEntry:
    """A finding with the page of its rule."""

    finding: Finding
    title: str
    paths: tuple[str, ...]
    paths_omitted: int
    evidence: tuple[tuple[str, EvidenceValue], ...]
    page: str
    """The page of the rule in Markdown; empty for a rule that this gradtui does not know."""


@dataclass(frozen=True)
class Contents:
    """All that a report says."""

    run: RunSummary
    series: RunSeries
    title: str
    facts: tuple[Fact, ...]
    details: tuple[Fact, ...]
    """Where and with what it ran."""
    warnings: tuple[str, ...]
    """What is wrong with the recording or with the end of the run, in sentences."""
    models: tuple[Model, ...]
    states: tuple[StateRow, ...]
    table: ModuleTable
    notes: tuple[str, ...]
    """Further sentences about what trains."""
    memory: MemoryContents
    metrics: MetricContents
    time: TimeContents | None
    """Where the time of the loop went; None before ten steps."""
    findings: tuple[FindingEntry, ...]
    findings_omitted: int
    changes_omitted: int
    ranks: RankContents | None
    """Of a job; None for one process."""


def contents_of(recorded: RecordedRun) -> Contents:
    """Return what a report on a run says."""
    run, series = recorded.summary, recorded.series
    count = len(run.interventions) + run.interventions_dropped + len(run.refused)
    letters = "".join(each.state or ParameterState.UNKNOWN.value for each in run.parameters)
    return Contents(
        run=run,
        series=series,
        title=_title(recorded),
        facts=tuple(_facts(run, series)),
        details=tuple(_details(recorded)),
        warnings=tuple(_warnings(recorded)),
        models=tuple(_models(run)[-_MODELS:]),
        states=tuple(
            StateRow(kind, words.replace(DASH, "unknown"), meaning) for kind, words, meaning in state_counts(letters)
        ),
        table=run.table or ModuleTable(()),
        notes=tuple(map(sentence, (*unregistered_lines(run.unregistered, run.unregistered_omitted), *run.checkpoints))),
        memory=memory_contents(run, series),
        metrics=metric_contents(run, series.metrics),
        time=time_contents(run),
        findings=tuple(map(_finding, run.findings[:MAX_FINDINGS])),
        findings_omitted=max(0, len(run.findings) - MAX_FINDINGS),
        changes_omitted=max(0, count - len(run.changes)),
        ranks=rank_contents(run),
    )


def _title(recorded: RecordedRun) -> str:
    script = recorded.summary.script if recorded.summary.script is not None else recorded.header.get("script")
    return script if isinstance(script, str) and script else "a run without a name"


def _facts(run: RunSummary, series: RunSeries) -> Iterator[Fact]:
    time_ = seconds_text(run.seconds).strip()
    skipped = f", {run.skipped_steps:,} skipped" if run.skipped_steps else ""
    micro = f", {plural(run.micro_steps, 'micro-step')}" if run.micro_steps != run.newest_step else ""
    makers = run.steps_by_optimizer
    loop = f" and {plural(run.iterations, 'iteration')}" if run.iterations != run.steps else ""
    yield Fact("Steps", f"{run.newest_step:,}", f"in {time_}{loop}{micro}{skipped}{f': {makers}' if makers else ''}")
    trained = [model for model in _models(run) if model.trainable]
    if trained:
        elements = sum(model.trainable or 0 for model in trained)
        of = sum(model.parameters for model in trained)
        yield Fact("Trainable", f"{elements:,}", f"{_percent(elements, of)} of {count_text(of).strip()} parameters")
    # What came before belongs to other models, or to another optimizer.
    since = max(series.breaks, default=0)
    for label, curve in _labelled(series):
        if curve.steps:
            first = bisect_right(curve.steps, since) if curve.steps[-1] > since else 0
            note = f"from {number_text(curve.values[first]).strip()} at step {curve.steps[first]:,}"
            yield Fact(label, number_text(curve.values[-1]).strip(), note if first < len(curve.steps) - 1 else "")
    peak = run.memory.peak
    if peak is not None:
        where = ", ".join(filter(None, (when_words(peak.step, peak.phase, peak.since_step), run.memory.fullest)))
        yield Fact("Peak memory", bounded(peak.bound or "exact", short_bytes(peak.bytes), " "), where)
    yield Fact("Findings", f"{len(run.findings):,}", _counts(run.findings))
    if run.interventions:
        count = len(run.interventions) + run.interventions_dropped
        yield Fact("Changes", f"{count:,}", f"the last at step {run.interventions[-1].step:,}")
    if run.returns:
        yield Fact("Returns", f"{run.return_count:,}", run.returns[-1].text)


def _labelled(series: RunSeries) -> Iterator[tuple[str, Curve]]:
    """Yield the curves whose ends are facts, with their labels."""
    of = f" of {series.loss_of}" if series.loss_of else ""
    yield f"Loss{of if series.other_losses else ''}", series.loss
    yield from ((f"Loss of {curve.name}", curve) for curve in series.other_losses)
    yield from ((f"G{curve.name[1:]}", curve) for curve in series.norms)


def _counts(findings: Sequence[Finding]) -> str:
    """Return `1 error, 2 notes`."""
    counts = ((level, sum(finding.level == level for finding in findings)) for level in LEVELS)
    return ", ".join(plural(count, level.value) for level, count in counts if count)


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0.0
    return "100 %" if part == whole else f"{share:.3g} %" if share < 99.95 else "> 99.9 %"


def _details(recorded: RecordedRun) -> Iterator[Fact]:
    run, header = recorded.summary, recorded.header
    if run.arguments:
        yield Fact("Arguments", " ".join(run.arguments))
    began = header.get("began")
    if isinstance(began, (int, float)) and math.isfinite(began) and 0 < began < 1e11:
        yield Fact("Began", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)))
    if run.device is not None:
        yield Fact("Device", run.device or "unknown")
    load = run.device_load
    if load is not None and load.in_words:
        yield Fact("Load of the device", load.in_words)
    if load is not None and load.cores_in_words:
        yield Fact("Cores in use", load.cores_in_words)
    for label, key in (("PyTorch", "torch"), ("Python", "python"), ("gradtui", "gradtui"), ("Host", "host")):
        value = header.get(key)
        if isinstance(value, str) and value:
            yield Fact(label, value)
    rank, ranks = header.get("rank"), header.get("ranks")
    if isinstance(rank, int) and isinstance(ranks, int):
        yield Fact("Rank", f"{rank} of {ranks}")
    cost = run.cost
    if cost.us_per_step is not None:
        share = f"{100 * (cost.share_of_step or 0.0):.1f} %"
        yield Fact("Overhead of gradtui", share, f"{duration_text(cost.us_per_step / 1e6)} a step")


def _warnings(recorded: RecordedRun) -> Iterator[str]:
    run = recorded.summary
    yield from map(sentence, recorded.troubles)
    if not run.newest_step and not run.micro_steps:
        yield from map(sentence, run.untrained or ["no step has been recorded"])
    if run.error is not None:
        headline = f": {run.error.headline}" if run.error.headline else ""
        yield sentence(f"the script failed with exit code {run.exit_code}{headline}")
    yield from (sentence(f"step {each.step:,}: {each.in_words}") for each in run.out_of_memory if each.bytes)
    yield from map(sentence, run.deviations)


def _models(run: RunSummary) -> list[Model]:
    """Return the models without those that were made a part of another one before they trained."""
    return [each for each in run.models if each.part_of is None or each.has_trained]


def _finding(finding: Finding) -> FindingEntry:
    rule = next((rule for rule in all_rules() if rule.id == finding.rule), None)
    paths = finding.paths[:_MAX_PATHS]
    return FindingEntry(
        finding,
        rule.title if rule is not None else "",
        paths,
        len(finding.paths) - len(paths),
        tuple(finding.evidence.items()),
        rule_page(rule) if rule is not None else "",
    )
