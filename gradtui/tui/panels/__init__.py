"""The panels of the dashboard beside the tree.

This package owns the header, the line with the gravest finding, and the memory, gradient norm, output and events panels.
"""

from gradtui.tui.panels.events import KINDS, EventsPanel
from gradtui.tui.panels.finding import FindingLine
from gradtui.tui.panels.gradients import GradientPanel, gradient_title
from gradtui.tui.panels.header import Header, HeaderState
from gradtui.tui.panels.memory import MemoryPanel, has_breakdown, memory_table, memory_title
from gradtui.tui.panels.memory_parts import AT_LOAD, PARTS
from gradtui.tui.panels.output import OutputPanel

__all__ = [
    "AT_LOAD",
    "KINDS",
    "PARTS",
    "EventsPanel",
    "FindingLine",
    "GradientPanel",
    "Header",
    "HeaderState",
    "MemoryPanel",
    "OutputPanel",
    "gradient_title",
    "has_breakdown",
    "memory_table",
    "memory_title",
]
