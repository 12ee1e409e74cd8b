"""What autograd and the optimizers do with one row of the module tree: facts, no sentences.

`explanation` makes an `Explanation` of a row, which the panel Why, the page of a row, `gradtui why`, MCP and the report read.
`details` adds what only the page has. `gradtui.run.text.explanation` makes sentences of both.
"""

from gradtui.run.explanation.causes import Cause, cause_of, never_of, state_cause
from gradtui.run.explanation.facts import (
    Backward,
    Explanation,
    Holding,
    Kept,
    ModuleExplanation,
    Moves,
    Owner,
    ParameterExplanation,
    Passing,
    RankDifference,
    RowState,
    Shard,
    TimeShare,
)
from gradtui.run.explanation.row import (
    MAX_NAMED,
    backward_in,
    explanation,
    kept_in,
    module_explanation,
    parameter_explanation,
    passing_through,
    row_state,
    time_share,
)

__all__ = [
    "MAX_NAMED",
    "Backward",
    "Cause",
    "Explanation",
    "Holding",
    "Kept",
    "ModuleExplanation",
    "Moves",
    "Owner",
    "ParameterExplanation",
    "Passing",
    "RankDifference",
    "RowState",
    "Shard",
    "TimeShare",
    "backward_in",
    "cause_of",
    "explanation",
    "kept_in",
    "module_explanation",
    "never_of",
    "parameter_explanation",
    "passing_through",
    "row_state",
    "state_cause",
    "time_share",
]
