"""GT110: modules run inside a model that does not register them."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import UnregisteredModule
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text import listed, plural


def check(state: RunState) -> Iterator[Match]:
    """Match unregistered modules with trainable parameters that no optimizer has."""
    lost: dict[str, list[UnregisteredModule]] = {}
    for module in state.unregistered:
        if module.trainable > module.in_optimizer:
            lost.setdefault(module.caller, []).append(module)
    for caller, modules in lost.items():
        count = sum(module.trainable - module.in_optimizer for module in modules)
        types = listed(list(dict.fromkeys(module.type_name for module in modules)))
        yield Match(
            f"{plural(len(modules), 'module')} ({types}) with {count:,} trainable elements run in {caller} without being "
            "registered: they are in no optimizer and in no state_dict",
            {"modules": len(modules), "elements": count},
            is_exact=True,
            key=caller,
        )


RULE = Rule(
    "GT110",
    Level.ERROR,
    "modules run without being registered",
    "parameters() and state_dict() contain only modules that are attributes of a module, or in a ModuleList or ModuleDict",
    "put the modules into an nn.ModuleList or nn.ModuleDict instead of a list or dict",
    check,
    needs=needs_sample,
)
