"""How a run ended, in a few labelled rows: the closing lines on stderr, and the dialog at the end of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gradtui.protocol.summary_ending import EndRow
from gradtui.run.state.findings import Level, by_gravity
from gradtui.run.state.forecasts.forecast_score import scores
from gradtui.run.state.model_records import reported_tree, state_counts
from gradtui.run.state.ranks.rank_failure import first_failure
from gradtui.run.state.run_state import RunState
from gradtui.run.text.bad_steps import nonfinite_text
from gradtui.run.text.device_load import load_words
from gradtui.run.text.device_memory import device_texts
from gradtui.run.text.effects import answer_text, counted, largest_result
from gradtui.run.text.findings import finding_line
from gradtui.run.text.forecast import forecast_error_words
from gradtui.run.text.freezes import checkpoint_lines, verified_text
from gradtui.run.text.kept_states import return_text
from gradtui.run.text.memory import graph_lines, peak_text
from gradtui.run.text.optimizers import loss_courses, norm_courses
from gradtui.run.text.out_of_memory import oom_headline
from gradtui.run.text.overhead import overhead_row
from gradtui.run.text.problem_states import problem_lines
from gradtui.run.text.ranks import ranks_outcome
from gradtui.run.text.report import schedule_lines, steps_words, trained_models, untrained_lines
from gradtui.run.text.return_policies import ended_lines
from gradtui.run.text.script_lines import script_line_text
from gradtui.run.text.step_times import time_row
from gradtui.run.text.throughput import mean_words
from gradtui.run.text.units import duration_text, plural

MAX_ROWS = 10
"""More rows than these are there only if each of the others is a finding or says that something went wrong."""

_DISPENSABLE = ("forecasts", "overhead", "device", "tensors", "speed", "time", "norm", "changed", "loss")
"""Rows that give way to findings, the first one first. The summary has what they say."""

_MESSAGE_LINES = 5
"""Lines of an error's text."""
_MODELS = 2
"""Models with a row each; more of them share one."""
_LABEL_WIDTH = 9


def ended_words(state: RunState) -> str:
    """Say that the run has ended or, where ranks of it still train, that only the process of the viewer has. No full stop."""
    training = len(state.job.live) if state.job is not None else 0
    if not training:
        return "The run has ended"
    return f"The script has ended, and {plural(training, 'rank')} still {'trains' if training == 1 else 'train'}"


def closing_lines(ending: Iterable[EndRow]) -> list[str]:
    """Return the rows as lines with their labels in a column."""
    return [closing_line(row.label, row.text) for row in ending]


def closing_line(label: str, text: str) -> str:
    """Return a text behind its label, in the column of the closing lines."""
    return f"{label:<{_LABEL_WIDTH}} {text}"


def end_rows(state: RunState) -> list[EndRow]:
    """Return how the run ended, what trained, where memory peaked, what was found and what was changed."""
    rows = [
        *_outcome(state),
        *_training(state),
        *_memory(state),
        *(EndRow("device", text) for text in (*device_texts(state), load_words(state.device_load)) if text),
        *_time(state),
        *_overhead(state),
        *_troubles(state),
        *_returns(state),
        *_changes(state),
    ]
    for label in _DISPENSABLE:
        if len(rows) > MAX_ROWS:
            rows = [row for row in rows if row.label != label or row.level is not None]
    return rows


def _outcome(state: RunState) -> list[EndRow]:
    rows = _error(state)
    if state.job is not None:
        are_whole = all(each.ended is not None and not each.ended.exit_code for each in state.job.ranks.values())
        rows.append(EndRow("ranks", ranks_outcome(state.job), None if are_whole else Level.WARNING))
    if state.step == 0 and state.micro_steps == 0:
        if state.job is not None:
            return [*rows, EndRow("trained", "the rank that is shown has made no step", Level.WARNING)]
        first, *more = untrained_lines(state) if state.ended is not None else ["no step has been made so far"]
        return [*rows, EndRow("trained", first, Level.WARNING), *(EndRow("", line) for line in more)]
    text = f"{steps_words(state)}, {plural(state.micro_steps, 'micro-step')} in {duration_text(state.seconds)}"
    if state.skipped_steps:
        text += f", {state.skipped_steps} skipped"
    if state.ended is not None and state.ended.exit_code:
        text += f", exit code {state.ended.exit_code}"
    return [*rows, EndRow("steps", text)]


def _error(state: RunState) -> list[EndRow]:
    """Return what ended the script: the exception, the script's line, more of the text, and the cause."""
    ended = state.ended
    # The launcher's own error is a report in many lines about the ranks.
    of_rank = first_failure(state.job, is_over=ended is not None) if state.job is not None else None
    if of_rank is not None:
        headline, raised = of_rank.words, of_rank.uncaught
    else:
        headline, raised = (ended.headline, ended.uncaught) if ended is not None else ("", None)
    rows = [EndRow("error", headline, Level.ERROR)] if headline else []
    if raised is None:
        return rows
    if raised.line is not None:
        rows.append(EndRow("at", script_line_text(raised.line)))
    more, rest = [*raised.message[1:_MESSAGE_LINES]], raised.message[_MESSAGE_LINES:]
    left = len(rest) + raised.omitted
    if left:
        more.append(f"… and {plural(left, 'more line')}")
    rows += [EndRow("" if index else "message", line) for index, line in enumerate(more)]
    return [*rows, EndRow("cause", raised.cause)] if raised.cause else rows


def _training(state: RunState) -> list[EndRow]:
    rows = [EndRow("trained", text) for text in trained_models(state, _MODELS)]
    counts = state_counts(state, reported_tree(state))
    if counts:
        rows.append(EndRow("tensors", ", ".join(f"{name} {count:,}" for name, count in counts.items())))
    rows += [EndRow("loss", text) for text in loss_courses(state)]
    return [*rows, *(EndRow("norm", text) for text in norm_courses(state))]


def _memory(state: RunState) -> list[EndRow]:
    text = peak_text(state)
    return [EndRow("memory", text)] if text else []


def _time(state: RunState) -> list[EndRow]:
    rows = ("time", time_row(state)), ("speed", mean_words(state))
    return [EndRow(label, text) for label, text in rows if text]


def _overhead(state: RunState) -> list[EndRow]:
    text = overhead_row(state)
    return [EndRow("overhead", text)] if text else []


def _troubles(state: RunState) -> list[EndRow]:
    """Return what was found and what went wrong, gravest first."""
    moved = [EndRow("moved", verified_text(event), Level.ERROR) for event in state.verified.values() if event.moved]
    memory = [
        EndRow("memory", f"step {event.step:,}: {oom_headline(event)}", Level.ERROR)
        for event in state.out_of_memory
        if event.categories
    ]
    bad = [] if state.bad_step is None else [EndRow("norm", nonfinite_text(state.bad_step), Level.ERROR)]
    returns = [EndRow("returns", line, Level.WARNING) for line in ended_lines(state)]
    schedule = [EndRow("schedule", line.partition(": ")[2], Level.WARNING) for line in schedule_lines(state)]
    findings = [EndRow("finding", finding_line(finding), finding.level) for finding in by_gravity(state.findings)]
    graphs = [EndRow("graphs", line, Level.WARNING) for line in graph_lines(state)]
    # A finding says the same with a remedy.
    problems = (
        [] if findings else [EndRow("state", line, Level.WARNING) for line in problem_lines(reported_tree(state))]
    )
    resume = [EndRow("resume", line, Level.WARNING) for line in checkpoint_lines(state) if "loads only" in line]
    return [*moved, *memory, *bad, *returns, *schedule, *findings, *graphs, *problems, *resume]


def _returns(state: RunState) -> list[EndRow]:
    kept = state.kept
    if not kept.return_count:
        return []
    more = f"; {kept.return_count - 1:,} before that" if kept.return_count > 1 else ""
    return [EndRow("returned", return_text(kept.returns[-1]).removeprefix("returned ") + more)]


def _changes(state: RunState) -> list[EndRow]:
    if not state.intervention_count:
        return []
    last = state.interventions[-1]
    done = answer_text(state, last.command, last.text)
    text = f"{plural(state.intervention_count, 'change')}, the last at step {last.step:,}: {done}"
    receipt, made = state.receipts.get(last.command.id), state.forecast_of.get(last.command.id)
    effect = counted(state, receipt).effect if receipt is not None else None
    largest = largest_result(effect, made) if effect is not None else None
    rows = [EndRow("changed", text if largest is None or made is None else f"{text}; {largest}")]
    return [*rows, *(EndRow("forecasts", words) for words in forecast_error_words(scores(state)))]
