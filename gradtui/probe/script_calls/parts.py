"""Create the parts that follow the script's seldom calls, and have them report. Runs on the training thread."""

from __future__ import annotations

from typing import Any

from torch import nn

from gradtui.probe.script_calls.module_loads import ModuleLoads, are_own_tensors
from gradtui.probe.steps import ProbeContext


class ScriptCallParts:
    """The parts of one probe that follow the script's seldom calls."""

    def __init__(self, context: ProbeContext) -> None:
        self._hooks = context.hooks
        self.loads = ModuleLoads(context)
        self._all = (self.loads,)
        self._own = 0
        """The tensors given to the present call of `load_state_dict` that are the module's own, if all are."""

    def module_load_begins(self, now: int, module: nn.Module, given: Any) -> None:  # noqa: ARG002
        """Handle the start of `Module.load_state_dict`."""
        self._own = are_own_tensors(module, given)

    def module_load_ended(self, now: int, module: nn.Module, given: Any, result: Any) -> None:  # noqa: ARG002
        """Handle its end, with what it returned."""
        self.loads.ended(module, given, list(result.missing_keys), list(result.unexpected_keys), are_own=self._own > 0)

    def report(self) -> None:
        """Emit what is known by now. Call it between steps."""
        for part in self._all:
            with self._hooks.guarded("calls of the script"):
                part.report()
