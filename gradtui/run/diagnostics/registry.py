"""Find the rules: every module of `gradtui.run.diagnostics.rules` has one, under the name `RULE`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from gradtui.run.diagnostics import rules
from gradtui.run.diagnostics.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return all rules in the order of their ids."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__) if module.name.startswith("gt"))
    return tuple(importlib.import_module(f"{rules.__name__}.{name}").RULE for name in names)
