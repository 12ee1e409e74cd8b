"""What autograd and the optimizers do with one row of the module tree: facts, no sentences.

`row.explanation` makes an `Explanation` (`facts.py`), which the panel Why, `gradtui why`, MCP and the report read.
`details.details` adds what only the page of a row has (`page_facts.py`): figures, the way of the gradient, and what a freeze
would change. `gradtui.run.text.explanation` makes sentences of both, and of nothing else.
"""
