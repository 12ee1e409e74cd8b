"""What autograd and the optimizers do with one row of the module tree: facts, no sentences.

`row.explanation` makes an `Explanation`, which the panel Why, the page of a row, `gradtui why`, MCP and the report read.
`details.details` adds the figures that only the page has. `gradtui.run.text.explanation` makes sentences of both.
"""
