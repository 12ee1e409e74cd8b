"""The panels of the dashboard beside the tree.

This package owns the header, the line with the gravest finding, the explanation of the selected row, and the memory, curves,
changes, output and events panels.
"""

from gradtui.tui.panels.changes import ChangesPanel, changes_lines
from gradtui.tui.panels.curves import CurvesPanel, curves_title
from gradtui.tui.panels.events import KINDS, EventsPanel
from gradtui.tui.panels.finding import FindingLine
from gradtui.tui.panels.header import Header, HeaderState
from gradtui.tui.panels.memory import MemoryPanel, memory_table
from gradtui.tui.panels.output import OutputPanel
from gradtui.tui.panels.ranks import SHOWN, RanksPanel
from gradtui.tui.panels.time_bar import Player, TimeBar, time_line
from gradtui.tui.panels.why import WhyPanel

__all__ = [
    "KINDS",
    "SHOWN",
    "ChangesPanel",
    "CurvesPanel",
    "EventsPanel",
    "FindingLine",
    "Header",
    "HeaderState",
    "MemoryPanel",
    "OutputPanel",
    "Player",
    "RanksPanel",
    "TimeBar",
    "WhyPanel",
    "changes_lines",
    "curves_title",
    "memory_table",
    "time_line",
]
