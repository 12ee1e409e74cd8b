"""The module tree panel.

This package owns its rows, columns, cells and totals, and the filter.
"""

from gradtui.tui.tree.finding_rows import CONCERNED, findings_at, first_row
from gradtui.tui.tree.pane import TreePane
from gradtui.tui.tree.tree_cells import FREEZE, MIXED, RECOMPUTED, TIED, UNFREEZE
from gradtui.tui.tree.tree_columns import SPARK_WIDTH
from gradtui.tui.tree.tree_reach import HIDDEN, PARTLY, RUNS, STOPS, WITHIN
from gradtui.tui.tree.tree_rows import buffer_at, row_path
from gradtui.tui.tree.view import ModuleTree

__all__ = [
    "CONCERNED",
    "FREEZE",
    "HIDDEN",
    "MIXED",
    "PARTLY",
    "RECOMPUTED",
    "RUNS",
    "SPARK_WIDTH",
    "STOPS",
    "TIED",
    "UNFREEZE",
    "WITHIN",
    "ModuleTree",
    "TreePane",
    "buffer_at",
    "findings_at",
    "first_row",
    "row_path",
]
