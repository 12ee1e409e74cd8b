"""Apply activation checkpointing on command: refusals, the result of the trial, and the receipt.

Training thread only.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from gradtui.probe.activation_checkpointing import Wanted
from gradtui.probe.commands.preconditions import SHARDED, module_at
from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused, CommandResult, ProbeContext
from gradtui.probe.sampling import StepSampler
from gradtui.probe.torch_private.private_names import compiled_in_place
from gradtui.probe.torch_private.saved_hooks import HAS_CHECKPOINT_STATE
from gradtui.protocol.commands import SetCheckpointing
from gradtui.protocol.events import CheckpointingChanged, ReceiptTaken
from gradtui.text import plural, refusals, size_text

RECEIPT_STEPS = 3
"""Rounds of steps after which the receipt is emitted. Saved bytes are known after the first; the step time is the median."""

PATIENCE = 10
"""The trial is given up after this many rounds of steps without a call of the module while autograd records."""


@dataclass
class _Receipt:
    """The measurements before a change, and the steps since."""

    command: int
    path: str
    seconds: float
    activations: int | None = None
    waited: int = 0
    """Number of steps that the trial has been pending."""
    since: list[float] = field(default_factory=list)
    after: int | None = None
    """Bytes of activations in the first round after it, before any later change."""


class Checkpointing:
    """Turns activation checkpointing of modules on and off, and emits the results."""

    def __init__(self, context: ProbeContext, step_sampler: StepSampler) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._step_sampler = step_sampler
        self._step_time = step_sampler.step_time
        self._checkpoints = step_sampler.checkpoints
        self._trials: dict[int, _Receipt] = {}
        """Command id -> the receipt to begin after the trial."""
        self._receipts: list[_Receipt] = []
        self._emitted: tuple[int, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether anything is pending at the next step boundary."""
        return bool(self._trials or self._receipts) or (bool(self._emitted) and self._emitted != self._indices())

    def tree_changed(self) -> None:
        """Emit the checkpointed modules again, since modules have new indexes."""
        self._emitted = (-1,) if self._checkpoints.wanted else ()

    def set(self, command: SetCheckpointing) -> CommandResult:
        """Turn checkpointing of the named module on or off. Raises `CommandRefused`."""
        tree = self._view.tree
        path, index, module = module_at(command.path, tree)
        wanted = self._checkpoints.get(module)
        if command.on is (wanted is not None):
            raise CommandRefused(refusals.ALREADY_SO)
        if wanted is not None:
            return self._off(module, wanted, path, command.id)
        self._refuse(index, module, tree)
        within = range(index + 1, index + tree.modules[index].subtree_modules)
        inner = [
            tree.modules[each].path
            for each in within
            if (live := tree.module_refs[each]()) is not None and self._checkpoints.get(live) is not None
        ]
        undo = self._on(module, path, command.id)
        note = f"; {' and '.join(inner[:3])} within it count again when it no longer is" if inner else ""
        twice = _hooks_run_again(module)
        return CommandResult(f"checkpoints {path}, if this step's trial agrees{note}{twice}", (), undo)

    def _on(self, module: nn.Module, path: str, command: int) -> Callable[[], CommandResult]:
        """Begin the trial of a module. Return the function that undoes it."""
        self._checkpoints.add(module, path, command)
        self._trials[command] = _Receipt(command, path, self._step_time.typical)
        reference = weakref.ref(module)

        def undo() -> CommandResult:
            live = reference()
            wanted = self._checkpoints.get(live) if live is not None else None
            if live is None or wanted is None:
                return CommandResult(f"{path} is not checkpointed any longer", ())
            return self._off(live, wanted, path, wanted.command)

        return undo

    def _off(self, module: nn.Module, wanted: Wanted, path: str, command: int) -> CommandResult:
        self._checkpoints.remove(module)
        self._trials.pop(wanted.command, None)
        if not wanted.agreed:
            return CommandResult(f"no longer checkpoints {path}", ())
        self._receipts.append(_Receipt(command, path, self._step_time.typical, self._step_sampler.activations))
        reference = weakref.ref(module)

        def again() -> CommandResult:
            live = reference()
            if live is None:
                return CommandResult(f"{path} is gone", ())
            if self._checkpoints.get(live) is None:
                self._on(live, path, command)
            return CommandResult(f"checkpoints {path} again", ())

        return CommandResult(f"no longer checkpoints {path}", (), again)

    def _refuse(self, index: int, module: nn.Module, tree: ModuleTree) -> None:
        around = tree.around(tree.parents[index])
        if not around:
            raise CommandRefused(refusals.WHOLE_MODEL)
        if getattr(module.forward, "__func__", None) is nn.Module.forward:
            raise CommandRefused(refusals.no_forward(type(module).__name__))
        if not HAS_CHECKPOINT_STATE:
            raise CommandRefused(refusals.TORCH_VERSION)
        live = {each: found for each in around if (found := tree.module_refs[each]()) is not None}
        if any(isinstance(each, torch.jit.ScriptModule) for each in module.modules()):
            raise CommandRefused(refusals.TORCHSCRIPT)
        wrapped = {tree.index_of(wrapper) for ref in tree.wrapper_refs if (wrapper := ref()) is not None}
        below = range(index, index + tree.modules[index].subtree_modules)
        if any(map(compiled_in_place, [*module.modules(), *live.values()])) or wrapped & {*around, *below}:
            raise CommandRefused(refusals.COMPILED)
        outer = next((tree.modules[each].path for each, found in live.items() if self._checkpoints.get(found)), None)
        if outer is not None:
            raise CommandRefused(refusals.within_checkpointed(outer))
        for found in live.values():
            if any(kind.__name__ in SHARDED for kind in type(found).__mro__):
                raise CommandRefused(refusals.SHARDED)
            if isinstance(found, nn.parallel.DistributedDataParallel) and getattr(found, "static_graph", False):
                raise CommandRefused(refusals.STATIC_GRAPH)

    def settle(self, step: int) -> None:
        """Conclude trials and emit receipts at a step boundary."""
        for receipt in list(self._receipts):
            receipt.since.append(self._step_time.recent[-1] if self._step_time.recent else 0.0)
            if len(receipt.since) <= self._view.round_length:
                receipt.after = self._step_sampler.activations
            if len(receipt.since) >= RECEIPT_STEPS * self._view.round_length:
                self._receipts.remove(receipt)
                self._emit(ReceiptTaken(self._clock.at(), step, receipt.command, self._words(receipt), True))
        self._trials = {
            command: receipt for command, receipt in self._trials.items() if self._is_pending(receipt, step)
        }
        indices = self._indices()
        if indices != self._emitted:
            self._emitted = indices
            self._emit(CheckpointingChanged(self._clock.at(), step, indices))

    def _is_pending(self, receipt: _Receipt, step: int) -> bool:
        """Return whether the trial is still to come. Conclude it if it has been made, and give it up after a while."""
        wanted = next((each for each in self._checkpoints.wanted.values() if each.command == receipt.command), None)
        if wanted is None:
            return False
        if wanted.trial is None:
            if receipt.waited < PATIENCE * self._view.round_length:
                receipt.waited += 1
                return True
            self._give_up(wanted, refusals.not_called(receipt.waited), step)
            return False
        trial, wanted.trial = wanted.trial, None
        objection = trial.finish_step()
        if objection is not None:
            self._give_up(wanted, objection, step)
            return False
        wanted.agreed, wanted.moving = True, trial.moving
        receipt.activations = self._step_sampler.activations
        # Receipts of several changes at one boundary each include the effect of all of them.
        self._receipts.append(receipt)
        self._step_sampler.toggled(step)
        return False

    def _give_up(self, wanted: Wanted, why: str, step: int) -> None:
        module = wanted.module()
        if module is not None:
            self._checkpoints.remove(module)
        text = f"{wanted.path} is not checkpointed: {why}"
        self._emit(ReceiptTaken(self._clock.at(), step, wanted.command, text, False))

    def _words(self, receipt: _Receipt) -> str:
        parts = []
        if receipt.activations is not None and receipt.after is not None:
            parts.append(f"activations {size_text(receipt.activations)} → {size_text(receipt.after)}")
        if receipt.seconds > 0:
            after = statistics.median(receipt.since)
            # "about", since other load on the machine may affect so few steps more than the change does.
            parts.append(f"step about {receipt.seconds * 1e3:.3g} → {after * 1e3:.3g} ms")
        return f"{receipt.path}: {', '.join(parts) or 'nothing was measured'}"

    def _indices(self) -> tuple[int, ...]:
        tree = self._view.tree
        live = [(each, each.module()) for each in self._checkpoints.wanted.values()]
        indices = (tree.index_of(module) for each, module in live if each.agreed and module is not None)
        return tuple(sorted(index for index in indices if index >= 0))


def _hooks_run_again(module: nn.Module) -> str:
    """Return a note if the script's own forward hooks will be called once more in backward."""
    hooked = sum(bool(vars(each)["_forward_hooks"] or vars(each)["_forward_pre_hooks"]) for each in module.modules())
    return f"; forward hooks of {plural(hooked, 'module')} in it run again in backward" if hooked else ""
