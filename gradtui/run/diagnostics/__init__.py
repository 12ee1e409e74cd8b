"""Say what is wrong with a run, cause first.

This package owns the rules, which are pure functions over `RunState`, and the tracker that turns their matches into findings
with a history.
"""

from gradtui.run.diagnostics.registry import all_rules, own_rules
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.tracker import FindingTracker

__all__ = ["FindingTracker", "Match", "Rule", "all_rules", "own_rules"]
