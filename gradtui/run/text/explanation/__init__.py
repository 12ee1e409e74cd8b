"""Makes sentences of the facts about one row of the module tree (`gradtui.run.explanation`), in three lengths.

`sentences` is the short one, which the panel Why cuts to its size; `page` has every fact with a label. What a freeze would
change follows the former as clauses (`gradtui.run.text.forecast`), and is derived in the latter (`derivation`).
"""
