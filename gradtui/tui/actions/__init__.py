"""The actions that keys trigger.

This package owns the table of actions, from which key bindings, the footer, the help screen and the command palette are made.
"""

from gradtui.tui.actions.action import Action
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.actions.bindings import actions_here, applicable, bindings, by_group, footer_actions
from gradtui.tui.actions.keymap import Keymap, keymap, keymap_of
from gradtui.tui.actions.output_actions import SHARED_WITH_OUTPUT, output_footer
from gradtui.tui.actions.plot_actions import PLOT_ACTIONS, SHARED_WITH_PLOTS

__all__ = [
    "ACTIONS",
    "PLOT_ACTIONS",
    "SHARED_WITH_OUTPUT",
    "SHARED_WITH_PLOTS",
    "Action",
    "Keymap",
    "actions_here",
    "applicable",
    "bindings",
    "by_group",
    "footer_actions",
    "keymap",
    "keymap_of",
    "output_footer",
]
