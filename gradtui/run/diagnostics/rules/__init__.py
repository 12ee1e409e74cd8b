"""The rules, one module for each: `gt203_never_cleared.py` defines `RULE` with the id `GT203`.

`gradtui.run.diagnostics.registry` finds them by their names. `docs/rules/` has a page and an example for each.
"""
