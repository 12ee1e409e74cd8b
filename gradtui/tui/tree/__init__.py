"""The module tree panel.

This package owns its rows, columns, cells and totals, and the filter.
"""

from gradtui.tui.tree.finding_rows import CONCERNED, first_row
from gradtui.tui.tree.pane import TreePane
from gradtui.tui.tree.state_cell import FREEZE, MIXED, UNFREEZE
from gradtui.tui.tree.tree_cells import AT_LEAST, DIFFERS, PASSING, RECOMPUTED, TIED
from gradtui.tui.tree.tree_columns import ALL_COLUMNS, COLUMNS, SPARK_WIDTH, column_words
from gradtui.tui.tree.tree_reach import HIDDEN, NEVER, PARTLY, PASSES, STOPS, STOPS_TRAINS, TRAINS
from gradtui.tui.tree.view import ModuleTree

__all__ = [
    "ALL_COLUMNS",
    "AT_LEAST",
    "COLUMNS",
    "CONCERNED",
    "DIFFERS",
    "FREEZE",
    "HIDDEN",
    "MIXED",
    "NEVER",
    "PARTLY",
    "PASSES",
    "PASSING",
    "RECOMPUTED",
    "SPARK_WIDTH",
    "STOPS",
    "STOPS_TRAINS",
    "TIED",
    "TRAINS",
    "UNFREEZE",
    "ModuleTree",
    "TreePane",
    "column_words",
    "first_row",
]
