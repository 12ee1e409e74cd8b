"""Sentences and units that several parts use: the screen, `--plain`, the files and the answers to commands.

This package imports `gradtui.state` and `gradtui.protocol` only.
"""

from gradtui.text.breakpoints import breakpoint_text, reached_text
from gradtui.text.commands import command_text
from gradtui.text.effects import change_results, change_words, effect_results, effect_text, sizes_text
from gradtui.text.ending import EndRow, closing_lines, end_rows
from gradtui.text.findings import finding_counts_text, finding_line, finding_lines, finding_text
from gradtui.text.freezes import checkpoint_lines, contended_text, contending_text, holding_text, verified_text
from gradtui.text.frontier import called, record_sentence, stop_text, why_there
from gradtui.text.memory import growth_text, memory_source_text, no_profile_text
from gradtui.text.models import record_text, same_storage_text, unregistered_lines
from gradtui.text.nonfinite import nonfinite_text
from gradtui.text.out_of_memory import oom_headline, oom_place, oom_report
from gradtui.text.parameters import (
    STATE_MEANINGS,
    STATE_SUMMARIES,
    STATE_WORDS,
    moved_text,
    state_counts,
    state_reason,
    why_never,
    why_so,
)
from gradtui.text.report import progress_line, report_lines, schedule_lines, untrained_lines
from gradtui.text.units import (
    BYTES_WIDTH,
    COUNT_WIDTH,
    DASH,
    NUMBER_WIDTH,
    RATE_WIDTH,
    SECONDS_WIDTH,
    SHARE_WIDTH,
    bytes_text,
    count_text,
    dtype_text,
    listed,
    microseconds_text,
    number_text,
    plural,
    rate_text,
    seconds_text,
    shape_text,
    share_text,
    short_bytes,
    short_rate,
    size_text,
    steps_text,
    time_left_text,
)

__all__ = [
    "BYTES_WIDTH",
    "COUNT_WIDTH",
    "DASH",
    "NUMBER_WIDTH",
    "RATE_WIDTH",
    "SECONDS_WIDTH",
    "SHARE_WIDTH",
    "STATE_MEANINGS",
    "STATE_SUMMARIES",
    "STATE_WORDS",
    "EndRow",
    "breakpoint_text",
    "bytes_text",
    "called",
    "change_results",
    "change_words",
    "checkpoint_lines",
    "closing_lines",
    "command_text",
    "contended_text",
    "contending_text",
    "count_text",
    "dtype_text",
    "effect_results",
    "effect_text",
    "end_rows",
    "finding_counts_text",
    "finding_line",
    "finding_lines",
    "finding_text",
    "growth_text",
    "holding_text",
    "listed",
    "memory_source_text",
    "microseconds_text",
    "moved_text",
    "no_profile_text",
    "nonfinite_text",
    "number_text",
    "oom_headline",
    "oom_place",
    "oom_report",
    "plural",
    "progress_line",
    "rate_text",
    "reached_text",
    "record_sentence",
    "record_text",
    "report_lines",
    "same_storage_text",
    "schedule_lines",
    "seconds_text",
    "shape_text",
    "share_text",
    "short_bytes",
    "short_rate",
    "size_text",
    "sizes_text",
    "state_counts",
    "state_reason",
    "steps_text",
    "stop_text",
    "time_left_text",
    "unregistered_lines",
    "untrained_lines",
    "verified_text",
    "why_never",
    "why_so",
    "why_there",
]
