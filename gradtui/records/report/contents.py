"""What a report says about a run, as plain data. Pure."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import ParameterState
from gradtui.records.export.rule_pages import rule_page
from gradtui.records.report.curves import (
    Curve,
    change_of_optimizer,
    curve_of,
    fact_curves,
    main_curves,
    other_losses,
    total_norms,
)
from gradtui.records.report.memory_contents import MemoryContents, memory_contents
from gradtui.records.report.metric_contents import MetricContents, metric_contents
from gradtui.records.report.module_rows import ModuleTable, module_table
from gradtui.records.report.rank_contents import RankContents, rank_contents
from gradtui.records.report.recorded_run import RecordedRun
from gradtui.records.report.time_contents import TimeContents, time_contents
from gradtui.run.diagnostics import all_rules
from gradtui.run.state.changes import Change, ChangeStatus
from gradtui.run.state.findings import LEVELS, EvidenceValue, Finding, by_gravity
from gradtui.run.state.markers import markers, model_breaks
from gradtui.run.state.model_records import model_labels, model_records, reported_tree
from gradtui.run.state.run_memory import run_peak
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.selectors import has_trained
from gradtui.run.text import (
    DASH,
    bounded,
    change_results,
    change_words,
    count_text,
    counted_changes,
    duration_text,
    fullest_words,
    nonfinite_text,
    number_text,
    oom_headline,
    plural,
    record_sentence,
    record_text,
    seconds_text,
    short_bytes,
    state_counts,
    unregistered_lines,
    untrained_lines,
    when_words,
)
from gradtui.run.text.device_load import cores_words, load_words
from gradtui.run.text.effects import effect_clauses
from gradtui.run.text.forecast import forecast_error_words
from gradtui.run.text.freezes import checkpoint_lines, verified_result
from gradtui.run.text.kept_states import return_text
from gradtui.run.text.optimizers import main_name, steps_by_optimizer
from gradtui.run.text.return_policies import ended_lines
from gradtui.run.text.units import sentence

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
class Model:
    """A model of the run, in words."""

    name: str
    kind: str
    text: str
    backward: str
    """Where backward stops; empty where that is unknown."""


@dataclass(frozen=True)
class StateRow:
    """The number of tensors in a state, and what the state means."""

    state: ParameterState
    count: str
    meaning: str


@dataclass(frozen=True)
class Mark:
    """What happened at a step and may explain a bend in a curve."""

    step: int
    kind: str
    text: str


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
class ChangeEntry:
    """A change of the run, and what came of it."""

    step: int
    status: str
    words: str
    answer: str
    results: tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """All that a report says."""

    title: str
    facts: tuple[Fact, ...]
    details: tuple[Fact, ...]
    """Where and with what it ran."""
    warnings: tuple[str, ...]
    """What is wrong with the recording or with the end of the run, in sentences."""
    error: str
    """The traceback of a script that failed, else empty."""
    models: tuple[Model, ...]
    states: tuple[StateRow, ...]
    table: ModuleTable
    table_step: int | None
    """The step of the norms in the table."""
    notes: tuple[str, ...]
    """Further sentences about what trains."""
    memory: MemoryContents
    loss: Curve
    """That of the main optimizer; with `loss_of` its name, if several optimizers step in turns."""
    loss_of: str
    other_losses: tuple[Curve, ...]
    """Those of the other optimizers that step in turns, by their names. No chart compares them with each other."""
    norms: tuple[Curve, ...]
    rates: tuple[Curve, ...]
    metrics: MetricContents
    time: TimeContents | None
    """Where the time of the loop went; None before ten steps."""
    marks: tuple[Mark, ...]
    breaks: tuple[int, ...]
    """Steps after which other models train. No curve continues across them."""
    bad_step: str
    findings: tuple[FindingEntry, ...]
    findings_omitted: int
    changes: tuple[ChangeEntry, ...]
    changes_omitted: int
    ranks: RankContents | None
    """Of a job; None for one process."""
    forecast_errors: tuple[str, ...]


def contents_of(run: RecordedRun) -> Contents:
    """Return what a report on a run says."""
    present = run.state
    state = replace(present, tree=reported_tree(present))
    findings = by_gravity(state.findings)
    listed = counted_changes(state)
    return Contents(
        title=_title(run),
        facts=tuple(_facts(present)),
        details=tuple(_details(run)),
        warnings=tuple(_warnings(run)),
        error=(state.ended.error or "").strip() if state.ended is not None else "",
        models=tuple(_models(present)),
        states=tuple(
            StateRow(kind, count.replace(DASH, "unknown"), meaning) for kind, count, meaning in state_counts(state.tree)
        ),
        table=module_table(state),
        table_step=state.tree.norms_step,
        notes=tuple(_notes(state)),
        memory=memory_contents(state),
        loss=curve_of("loss", main_curves(state)[0]),
        loss_of=main_name(state),
        other_losses=tuple(other_losses(state)),
        norms=tuple(_norms(state)),
        rates=tuple(_rates(run)),
        metrics=metric_contents(state),
        time=time_contents(state),
        marks=tuple(Mark(each.step, each.kind.value, each.words) for each in markers(state)),
        breaks=tuple(sorted({*model_breaks(state), *change_of_optimizer(state)})),
        bad_step=nonfinite_text(state.bad_step) if state.bad_step is not None else "",
        findings=tuple(_finding(each) for each in findings[:MAX_FINDINGS]),
        findings_omitted=max(0, len(findings) - MAX_FINDINGS),
        changes=tuple(_change(each) for each in listed),
        changes_omitted=max(0, state.intervention_count + len(state.refused) - len(listed)),
        ranks=rank_contents(state.job),
        forecast_errors=tuple(forecast_error_words(state)),
    )


def _title(run: RecordedRun) -> str:
    started = run.state.started
    script = started.script if started is not None else run.header.get("script")
    return script if isinstance(script, str) and script else "a run without a name"


def _facts(state: RunState) -> Iterator[Fact]:
    time_ = seconds_text(state.seconds).strip()
    skipped = f", {state.skipped_steps:,} skipped" if state.skipped_steps else ""
    micro = f", {plural(state.micro_steps, 'micro-step')}" if state.micro_steps != state.step else ""
    makers = steps_by_optimizer(state)
    loop = f" and {plural(state.iterations, 'iteration')}" if state.iterations is not None else ""
    yield Fact("Steps", f"{state.step:,}", f"in {time_}{loop}{micro}{skipped}{f': {makers}' if makers else ''}")
    trained = [record for record in _records(state) if record.trainable]
    if trained:
        elements = sum(record.trainable or 0 for record in trained)
        of = sum(record.parameters for record in trained)
        yield Fact("Trainable", f"{elements:,}", f"{_percent(elements, of)} of {count_text(of).strip()} parameters")
    # What came before belongs to other models, or to another optimizer.
    since = max((*model_breaks(state), *change_of_optimizer(state)), default=0)
    for label, curve in fact_curves(state):
        if curve.last is not None:
            first = bisect_right(curve.steps, since) if curve.steps[-1] > since else 0
            note = f"from {number_text(curve.values[first]).strip()} at step {curve.steps[first]:,}"
            yield Fact(label, number_text(curve.last).strip(), note if first < len(curve) - 1 else "")
    peak = run_peak(state)
    if peak is not None:
        fullest = fullest_words(state, state.step_memory.devices)
        where = ", ".join(filter(None, (when_words(peak.step, peak.phase, peak.since), fullest)))
        yield Fact("Peak memory", bounded(peak.bound, short_bytes(peak.whole), " "), where)
    yield Fact("Findings", f"{len(state.findings):,}", _counts(state.findings))
    if state.intervention_count:
        yield Fact("Changes", f"{state.intervention_count:,}", f"the last at step {state.interventions[-1].step:,}")
    if state.kept.return_count:
        yield Fact("Returns", f"{state.kept.return_count:,}", return_text(state.kept.returns[-1]))


def _counts(findings: Sequence[Finding]) -> str:
    """Return `1 error, 2 notes`."""
    counts = ((level, sum(finding.level is level for finding in findings)) for level in LEVELS)
    return ", ".join(plural(count, level.value) for level, count in counts if count)


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0.0
    return "100 %" if part == whole else f"{share:.3g} %" if share < 99.95 else "> 99.9 %"


def _details(run: RecordedRun) -> Iterator[Fact]:
    state, header = run.state, run.header
    started = state.started
    if started is not None and started.arguments:
        yield Fact("Arguments", " ".join(started.arguments))
    began = header.get("began")
    if isinstance(began, (int, float)) and math.isfinite(began) and 0 < began < 1e11:
        yield Fact("Began", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)))
    if started is not None:
        yield Fact("Device", started.device or "unknown")
    load, cores = load_words(state.device_load), cores_words(state)
    if load:
        yield Fact("Load of the device", load)
    if cores:
        yield Fact("Cores in use", cores)
    for label, key in (("PyTorch", "torch"), ("Python", "python"), ("gradtui", "gradtui"), ("Host", "host")):
        value = header.get(key)
        if isinstance(value, str) and value:
            yield Fact(label, value)
    rank, ranks = header.get("rank"), header.get("ranks")
    if isinstance(rank, int) and isinstance(ranks, int):
        yield Fact("Rank", f"{rank} of {ranks}")
    cost = state.cost
    if cost.steps:
        yield Fact(
            "Overhead of gradtui",
            f"{100 * (cost.share or 0.0):.1f} %",
            f"{duration_text(cost.own_seconds / cost.steps)} a step",
        )


def _warnings(run: RecordedRun) -> Iterator[str]:
    state = run.state
    for trouble in run.troubles:
        yield sentence(trouble)
    if not has_trained(state):
        yield from map(sentence, untrained_lines(state) if state.ended is not None else ["no step has been recorded"])
    if state.ended is not None and (state.ended.error is not None or state.ended.exit_code):
        headline = f": {state.ended.headline}" if state.ended.headline else ""
        yield sentence(f"the script failed with exit code {state.ended.exit_code}{headline}")
    for event in state.out_of_memory:
        if event.categories:
            yield sentence(f"step {event.step:,}: {oom_headline(event)}")
    yield from map(sentence, (*state.schedule_notes, *ended_lines(state)))


def _notes(state: RunState) -> Iterator[str]:
    yield from map(sentence, unregistered_lines(state.unregistered, state.unregistered_omitted))
    yield from map(sentence, checkpoint_lines(state))


def _records(state: RunState) -> list[ModelRecord]:
    return [each for each in model_records(state) if each.part_of is None or each.has_trained]


def _models(state: RunState) -> Iterator[Model]:
    labels = model_labels(state)
    for record in _records(state)[-_MODELS:]:
        yield Model(
            labels[record.number],
            record.type_name,
            record_text(record),
            record_sentence(state, record) or "",
        )


def _norms(state: RunState) -> Iterator[Curve]:
    yield from total_norms(state)
    if len(state.before_clipping):
        yield curve_of("before clipping", state.before_clipping)
    if len(state.clip_thresholds):
        yield curve_of("clipped at", state.clip_thresholds)


def _rates(run: RecordedRun) -> Iterator[Curve]:
    """Yield the learning rates that have changed."""
    optimizers = run.state.optimizers
    seen: set[tuple[tuple[int, float], ...]] = set()
    for (optimizer, group), series in run.rates.items():
        curve = curve_of("", series)
        if len({value for _, value in curve.points}) < 2 or curve.points in seen:
            continue
        seen.add(curve.points)
        kind = optimizers[optimizer].type_name if optimizer < len(optimizers) else "optimizer"
        yield replace(curve, name=f"{kind} {optimizer + 1}, group {group + 1}")


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


def _change(change: Change) -> ChangeEntry:
    status = change.status.value
    # A refusal is its result, and has no other answer.
    answer = sentence(change.text) if change.status in (ChangeStatus.APPLIED, ChangeStatus.UNDONE) else ""
    return ChangeEntry(change.step, status, change_words(change), answer, tuple(_results(change)))


def _results(change: Change) -> Iterator[str]:
    """Yield what came of a change, each value with its name."""
    if change.receipt is not None and change.receipt.effect is not None:
        yield from effect_clauses(change.receipt.effect, change.forecast)
        if change.verified is not None:
            yield verified_result(change.verified)
        return
    status = change.status.value
    for result in change_results(change):
        if result != status:
            yield result.removeprefix(f"{status}: ")
