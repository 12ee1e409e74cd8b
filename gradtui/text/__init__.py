"""Sentences and units that several parts use: the screen, `--plain`, the files and the answers to commands.

This package imports `gradtui.state` and `gradtui.protocol` only.
"""

from gradtui.text.checkpoints import checkpoint_lines
from gradtui.text.closing_lines import closing_lines, progress_line, schedule_lines
from gradtui.text.commands import command_text
from gradtui.text.device_times import clock_lines
from gradtui.text.freezes import contended_text, contending_text, holding_text, verified_text
from gradtui.text.frontier import (
    called,
    frontier_sentence,
    record_sentence,
    stop_text,
    why_it_stops,
    why_not_entered,
    why_there,
)
from gradtui.text.memory import graph_lines, growth_text, most_saved_text
from gradtui.text.models import record_text
from gradtui.text.nonfinite import nonfinite_text
from gradtui.text.out_of_memory import oom_headline, oom_place, oom_report
from gradtui.text.parameters import cause_of, moved_text, problem_lines, state_reason, why_never
from gradtui.text.same_storage import same_storage_lines, same_storage_text
from gradtui.text.units import BYTES_WIDTH, DASH, bytes_text, plural, short_bytes, size_text
from gradtui.text.unregistered_modules import unregistered_lines

__all__ = [
    "BYTES_WIDTH",
    "DASH",
    "bytes_text",
    "called",
    "cause_of",
    "checkpoint_lines",
    "clock_lines",
    "closing_lines",
    "command_text",
    "contended_text",
    "contending_text",
    "frontier_sentence",
    "graph_lines",
    "growth_text",
    "holding_text",
    "most_saved_text",
    "moved_text",
    "nonfinite_text",
    "oom_headline",
    "oom_place",
    "oom_report",
    "plural",
    "problem_lines",
    "progress_line",
    "record_sentence",
    "record_text",
    "same_storage_lines",
    "same_storage_text",
    "schedule_lines",
    "short_bytes",
    "size_text",
    "state_reason",
    "stop_text",
    "unregistered_lines",
    "verified_text",
    "why_it_stops",
    "why_never",
    "why_not_entered",
    "why_there",
]
