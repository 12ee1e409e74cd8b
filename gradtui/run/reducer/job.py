"""Keep the state of a job from the events of its ranks: a light record of each rank, and the whole state of the shown one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from gradtui.protocol import events as ev
from gradtui.protocol.foreign_text import from_json
from gradtui.protocol.json_values import NotReadableError
from gradtui.run.reducer.common_steps import least_common
from gradtui.run.reducer.divergence import compare_ranks, keep_check
from gradtui.run.state.parts.job import NORMS_KEPT, SILENT_S, JobState, ProposalRecord, RankRecord, WholeNorms
from gradtui.run.state.ranks.rank_norms import common_norms, holders_of, shared_rows, unlike_norms, whole_row
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import restored
from gradtui.run.text import plural, seconds_text, uneven_text

PROPOSALS_KEPT = 64
FORMER_KEPT = 64

Apply = Callable[[RunState, ev.Event], None]


def job_of(state: RunState) -> JobState:
    """Return the state of the job, which begins with its first event."""
    if state.job is None:
        state.job = JobState()
    return state.job


def rank_joined(state: RunState, event: ev.RankJoined) -> None:
    job = job_of(state)
    job.now = max(job.now, event.at)
    if event.generation < job.generation:
        return
    if event.generation > job.generation:
        is_again = bool(job.ranks)
        job.former = [*job.former, *(job.ranks[rank] for rank in sorted(job.ranks))][-FORMER_KEPT:]
        job.ranks, job.generation, job.size, job.shown, job.is_chosen = {}, event.generation, 0, None, False
        job.holders, job.common_step, job.unlike_norms, job.whole = None, 0, {}, WholeNorms()
        job.earlier_interventions = state.intervention_count
        job.divergences, job.equal_steps, job.compared_step = {}, {}, 0
        job.divergence_changes, job.has_replicas = job.divergence_changes + 1, False
        _restart(state)
        if is_again:
            state.note(event, "ranks", f"the ranks were started again (generation {event.generation})")
    job.size = max(job.size, event.ranks)
    is_new = event.rank not in job.ranks
    job.ranks[event.rank] = record = RankRecord(
        event.rank, event.generation, event.local_rank, event.host, event.pid, event.at, event.at
    )
    if event.is_viewers:
        job.own = job.shown = event.rank
        _take_over(state, record)
    elif job.own is None and (job.shown is None or (event.rank < job.shown and not job.is_chosen)):
        # The events of a rank with a lower number that joins later are those of the same training. Those that the process of
        # the viewer has sent before it has started the ranks are of another one.
        _restart(state)
        job.shown = event.rank
    if is_new and len(job.ranks) == job.size:
        state.note(event, "run", f"all {plural(job.size, 'rank')} have joined")


def _take_over(state: RunState, record: RankRecord) -> None:
    """Copy the state of the viewer's own process into its record as a rank."""
    tree = state.tree
    record.listing, record.parameters = tree.listing, tree.parameters
    record.buffers = tuple(each.path for each in tree.buffers)
    record.outline = tuple((each.path, each.shape) for each in tree.parameters), record.buffers
    record.step, record.micro_steps, record.phase = state.step, state.micro_steps, state.phase
    record.backend = state.process_group.backend if state.process_group is not None else None


_OF_THE_JOB = (
    "job", "version", "seconds", "log", "log_count", "started", "ended", "pending", "refused", "interventions",
    "intervention_count", "findings",
)  # fmt: skip
"""What the state of the run says of the job, whichever rank is shown."""


def _restart(state: RunState, other: RunState | None = None) -> None:
    """Take the state of another rank instead of that of a rank; None if nothing is known of it yet."""
    other = other or RunState()
    other.metrics.pinned = state.metrics.pinned
    for each in fields(RunState):
        if each.name not in _OF_THE_JOB:
            setattr(state, each.name, getattr(other, each.name))


def _show(state: RunState, job: JobState, event: ev.RankEvent, taken: ev.RankStateTaken) -> None:
    """Show the rank whose state this is."""
    state.pending.pop(taken.request, None)
    try:
        value = from_json(taken.state)
        other = restored(value if isinstance(value, dict) else {})
    except (NotReadableError, ValueError):
        state.note(event, "rejected", f"cannot show rank {event.rank}: its state cannot be read")
        return
    # Panels keep what they have computed until the structure of the tree changes.
    other.tree.version = max(other.tree.version, state.tree.version) + 1
    _restart(state, other)
    earlier = job.earlier_interventions
    newer = state.intervention_count - earlier
    # Of this generation the rank itself knows what was done to it; it may be some events ahead of the rank shown so far.
    kept = state.interventions[: max(0, len(state.interventions) - newer)]
    state.interventions = [*kept, *other.interventions]
    state.intervention_count = earlier + other.intervention_count
    for id_, proposal in job.proposals.items():
        if event.rank in proposal.outcomes:
            state.pending.pop(id_, None)
    job.shown, job.is_chosen = event.rank, True
    state.note(event, "run", f"rank {event.rank} is shown")


def rank_left(state: RunState, event: ev.RankLeft) -> None:
    job = job_of(state)
    job.now = max(job.now, event.at)
    record = job.ranks.get(event.rank)
    if record is None or record.generation != event.generation:
        return
    record.left_at, record.left_reason, record.is_over = event.at, event.reason, event.is_over
    if event.reason:
        stays = "; its last state stays on the screen" if event.rank == job.shown and len(job.ranks) > 1 else ""
        state.note(event, "ranks", f"rank {event.rank}: {event.reason}{stays}")


def ranks_failed(state: RunState, event: ev.RanksFailed) -> None:
    job = job_of(state)
    job.now, job.failures = max(job.now, event.at), event.failures
    for failure in event.failures:
        if failure.rank in job.ranks:
            job.ranks[failure.rank].failure = failure


def ranks_heard(state: RunState, event: ev.RanksHeard) -> None:
    job = job_of(state)
    job.now = max(job.now, event.at)
    for rank, silent in event.silent:
        record = job.ranks.get(rank)
        if record is None:
            continue
        record.heard_at = max(record.heard_at, event.at - silent)
        if not record.is_silent and record.seconds_silent(event.at) >= SILENT_S:
            record.is_silent = True
            state.note(event, "ranks", f"rank {rank} is silent: stopped, or out of reach")


def command_proposed(state: RunState, event: ev.CommandProposed) -> None:
    job = job_of(state)
    job.proposals[event.command.id] = ProposalRecord(event.command, event.proposal, event.at_step)
    while len(job.proposals) > PROPOSALS_KEPT:
        del job.proposals[next(iter(job.proposals))]


def proposal_closed(state: RunState, event: ev.ProposalClosed) -> None:
    record = job_of(state).proposals.get(event.command)
    if record is None:
        return
    record.confirmed, record.reason = event.confirmed, event.reason


def rank_event(state: RunState, event: ev.RankEvent, apply: Apply) -> None:
    """Apply an event of a rank to its record, and to the state of the run if the rank is the shown one."""
    job = job_of(state)
    job.now = max(job.now, event.at)
    record = job.ranks.get(event.rank)
    if record is None or record.generation != event.generation:
        return
    if record.is_silent:
        record.is_silent = False
        after = seconds_text(record.seconds_silent(event.at)).strip()
        state.note(event, "ranks", f"rank {event.rank} is heard from again, after {after}")
    record.heard_at = max(record.heard_at, event.at)
    inner = event.event
    if isinstance(inner, ev.RankStateTaken):
        _show(state, job, event, inner)
        return
    _keep(state, job, record, inner)
    if event.rank != job.shown:
        return
    if isinstance(inner, ev.RunEnded):
        # The launcher says when the run has ended. Of the rank's last steps there may be no other event.
        state.step = max(state.step, inner.step)
        return
    if isinstance(inner, ev.RunStarted) and state.started is not None:
        inner = replace(inner, log=state.started.log)
    apply(state, inner)


def own_event(state: RunState, event: ev.Event) -> None:
    """Keep the record of the rank that is the process of the viewer, whose events are those of the run."""
    job = state.job
    record = job.ranks.get(job.own) if job is not None and job.own is not None else None
    if job is None or record is None or isinstance(event, _OF_JOB):
        return
    job.now = max(job.now, event.at)
    record.heard_at = max(record.heard_at, event.at)
    _keep(state, job, record, event)


def _keep(state: RunState, job: JobState, record: RankRecord, event: ev.Event) -> None:
    change = _OF_RANK.get(type(event))
    if change is not None:
        change(job, record, event)
    for text in _notes(job, record.rank, event):
        state.note(event, "ranks", text)


def _notes(job: JobState, rank: int, event: ev.Event) -> Iterator[str]:
    """Yield what the log says about ranks after an event of one of them."""
    if isinstance(event, (ev.CommandApplied, ev.CommandRejected)):
        proposal = job.proposals.get(event.command.id)
        if proposal is not None and not proposal.is_uneven and len(set(map(bool, proposal.outcomes.values()))) > 1:
            proposal.is_uneven = True
            yield uneven_text(proposal)
    if isinstance(event, ev.RunEnded) and event.exit_code:
        words = f": {event.headline}" if event.headline else f" with exit code {event.exit_code}"
        yield f"rank {rank} failed{words}"
    if isinstance(event, ev.ReplicasMeasured):
        yield from compare_ranks(job, event.step)


def _progress(_job: JobState, record: RankRecord, event: ev.Progress) -> None:
    seconds = sum(each.seconds for each in event.phases)
    for each in event.phases if event.steps else ():
        known = record.phase_seconds.get(each.phase)
        new = each.seconds / event.steps
        record.phase_seconds[each.phase] = new if known is None else known + (new - known) * 0.3
    if event.steps and seconds > 0:
        rate = event.steps / seconds
        before = record.steps_per_second
        record.steps_per_second = rate if before is None else before + (rate - before) * 0.3
    record.step, record.micro_steps = event.step, record.micro_steps + event.micro_steps


def _models_found(job: JobState, record: RankRecord, event: ev.ModelsFound) -> None:
    record.listing, record.norms, record.checks, record.totals = event.listing, [], [], {}
    # Indexes of parameters have changed, and norms of other models are not continued.
    job.holders, job.common_step, job.unlike_norms, job.whole = None, 0, {}, WholeNorms()
    record.buffers = tuple(each.path for each in event.buffers)
    outline = tuple((each.path, each.shape) for each in event.parameters), record.buffers
    # Ranks usually have the same models: one copy of what is long is enough.
    others = job.ranks.values()
    record.outline = next((each.outline for each in others if each.outline == outline), outline)
    record.parameters = next(
        (each.parameters for each in others if each.parameters == event.parameters), event.parameters
    )


def _take_figures(record: RankRecord, step: int, loss: float | None, total: float | None) -> None:
    if loss is not None:
        record.loss = loss
    if total is not None:
        record.norm, record.norm_step = total, step


def _steps_measured(_job: JobState, record: RankRecord, event: ev.StepsMeasured) -> None:
    for losses in event.losses:
        record.loss = losses.losses[-1]
    for figures in event.figures:
        _take_figures(record, figures.step, figures.loss, figures.total)


def _gradients(job: JobState, record: RankRecord, event: ev.GradientsMeasured) -> None:
    _take_figures(record, event.step, event.loss, event.total)
    if event.norms is not None and event.listing in (None, record.listing):
        record.norms = [*(each for each in record.norms if each[0] != event.step), (event.step, event.norms)]
        if _all_have_measured(job, event.step):
            for each in job.ranks.values():
                each.norms = [known for known in each.norms if known[0] >= event.step]
            _compare_norms(job)
        if len(record.norms) > NORMS_KEPT:
            del record.norms[least_common([step for step, _ in record.norms])]
        if event.total is not None:
            record.totals[event.step] = event.total
        kept = {job.common_step, *(step for step, _ in record.norms)}
        record.totals = {step: total for step, total in record.totals.items() if step in kept}


def _all_have_measured(job: JobState, step: int) -> bool:
    """Return whether all ranks that train have measured the norms of a step."""
    awaited = job.ranks.get(job.awaited) if job.awaited is not None else None
    if awaited is not None and awaited.is_connected and awaited.ended is None and not _has_measured(awaited, step):
        # The one that was missing before is missing still: with many ranks nearly every question ends here.
        return False
    # Ranks report in about the order of their numbers.
    missing = next((each.rank for each in reversed(job.live) if not _has_measured(each, step)), None)
    job.awaited = missing
    return missing is None


def _has_measured(record: RankRecord, step: int) -> bool:
    return any(step == known for known, _ in record.norms)


def _compare_norms(job: JobState) -> None:
    """Compare the norms of all ranks at the newest step that they have measured, and combine those of parts."""
    step, norms = next(common_norms(job), (0, {}))
    if not norms:
        return
    norms = shared_rows(norms)
    for rank, row in norms.items():
        record = job.ranks[rank]
        record.norms = [(known, row if known == step else other) for known, other in record.norms]
    if job.holders is None:
        job.holders = holders_of(job)
    job.common_step, job.unlike_norms = step, unlike_norms(step, norms, job.holders)
    if len(norms) == job.size and any(job.holders):
        whole = whole_row(norms, job.holders)
        if whole is not None:
            job.whole.take(step, whole)


def _memory(_job: JobState, record: RankRecord, event: ev.MemoryMeasured) -> None:
    record.memory[event.phase] = event


def _device(_job: JobState, record: RankRecord, event: ev.DeviceSampled) -> None:
    record.device = event


def _step_times(_job: JobState, record: RankRecord, event: ev.StepTimesMeasured) -> None:
    record.step_times = event


def _phase(_job: JobState, record: RankRecord, event: ev.PhaseSampled) -> None:
    record.phase = event.phase


def _paused(_job: JobState, record: RankRecord, event: ev.PauseChanged) -> None:
    record.paused = event.paused


def _ended(_job: JobState, record: RankRecord, event: ev.RunEnded) -> None:
    record.ended, record.step = event, max(record.step, event.step)


def _group(job: JobState, record: RankRecord, event: ev.ProcessGroupFound) -> None:
    record.backend = event.backend
    job.size = max(job.size, event.ranks)


def _checked(job: JobState, record: RankRecord, event: ev.ReplicasMeasured) -> None:
    if event.listing in (None, record.listing):
        keep_check(job, record, event)


def _answered(job: JobState, record: RankRecord, event: ev.ProposalAnswered) -> None:
    for proposal in job.proposals.values():
        if proposal.proposal == event.proposal:
            proposal.answers[record.rank] = event


def _applied(job: JobState, record: RankRecord, event: ev.CommandApplied) -> None:
    if event.command.id in job.proposals:
        job.proposals[event.command.id].outcomes[record.rank] = ""


def _rejected(job: JobState, record: RankRecord, event: ev.CommandRejected) -> None:
    if event.command.id in job.proposals:
        job.proposals[event.command.id].outcomes[record.rank] = event.reason


_OF_JOB = (ev.RankEvent, ev.RankJoined, ev.RankLeft, ev.RanksHeard, ev.CommandProposed, ev.ProposalClosed)

_OF_RANK: dict[type[ev.Event], Callable[[JobState, RankRecord, Any], None]] = {
    ev.Progress: _progress,
    ev.ModelsFound: _models_found,
    ev.GradientsMeasured: _gradients,
    ev.StepsMeasured: _steps_measured,
    ev.MemoryMeasured: _memory,
    ev.DeviceSampled: _device,
    ev.StepTimesMeasured: _step_times,
    ev.PhaseSampled: _phase,
    ev.PauseChanged: _paused,
    ev.RunEnded: _ended,
    ev.ProcessGroupFound: _group,
    ev.ReplicasMeasured: _checked,
    ev.ProposalAnswered: _answered,
    ev.CommandApplied: _applied,
    ev.CommandRejected: _rejected,
}
