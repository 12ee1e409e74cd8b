"""Find the rules: every module of `gradtui.run.diagnostics.rules` has one, under the name `RULE`. Plugins have others."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from gradtui.run.diagnostics import rules
from gradtui.run.diagnostics.plugin_rules import plugin_rules
from gradtui.run.diagnostics.rule import Rule
from gradtui.system import plugins


def all_rules() -> tuple[Rule, ...]:
    """Return all rules: gradtui's in the order of their ids, then those of plugins, which it loads."""
    plugins.load(plugins.RULES)
    return (*own_rules(), *plugin_rules())


@cache
def own_rules() -> tuple[Rule, ...]:
    """Return gradtui's rules in the order of their ids."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__) if module.name.startswith("gt"))
    return tuple(importlib.import_module(f"{rules.__name__}.{name}").RULE for name in names)
