"""The reads of values in a step, in words. Pure."""

from __future__ import annotations

import os

from gradtui.protocol.step_operations import ReadLine
from gradtui.run.state.time.small_operations import SmallOperations
from gradtui.run.text.units import plural, share_words
from gradtui.system.printable import printable


def small_verdict(small: SmallOperations) -> str:
    """Return what operations or reads cost the loop, in one clause."""
    if small.waits_stand_out:
        return (
            f"stalled by reads of values: {share_words(small.waited_share)} of the loop waits at {reads_words(small)}"
        )
    if small.are_reads:
        return f"stalled by reads of values: {share_words(small.share)} of the loop, {reads_words(small)}"
    many = f"starts small operations, {small.operations:,.0f} a step"
    return f"host-bound: {share_words(small.share)} of the loop {many}"


def reads_words(small: SmallOperations) -> str:
    """Return how many reads a step has and where most of them are: `640 reads a step, most at train.py:41`."""
    words = f"{plural(max(1, round(small.reads)), 'read')} a step"
    if not small.lines:
        return words
    most = small.lines[0]
    total = sum(each.reads for each in small.lines)
    return f"{words}, {'most ' if most.reads < total else ''}at {line_words(most)}"


def line_words(read: ReadLine) -> str:
    """Return a line of the script with its source: `train.py:41 (total += loss.item())`."""
    line = read.line
    source = f" ({printable(line.source)})" if line.source else ""
    return f"{printable(os.path.basename(line.file))}:{line.line}{source}"
