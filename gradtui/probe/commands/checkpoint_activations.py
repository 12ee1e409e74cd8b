"""Apply activation checkpointing on command: refusals, the result of the trial, and the receipt.

Training thread only.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from gradtui.probe.activation_checkpointing import CheckpointedModules, Wanted
from gradtui.probe.model import ModuleTree, ancestors, is_scripted, module_at
from gradtui.probe.runtime import CommandRefused, CommandResult, ProbeContext
from gradtui.probe.sampling import StepSampler
from gradtui.probe.torch_private import checkpoint_rules
from gradtui.probe.torch_private.private_names import compiled_in_place
from gradtui.protocol.commands import SetCheckpointing
from gradtui.protocol.events import CheckpointingChanged, ReceiptTaken
from gradtui.text import size_text

RECEIPT_STEPS = 3
"""Rounds of steps after which the receipt is emitted. Saved bytes are known after the first; the step time is the median."""

PATIENCE = 10
"""The trial is given up after this many rounds of steps without a call of the module while autograd records."""

_GATHERING = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")


@dataclass
class _Receipt:
    """The measurements before a change, and the steps since."""

    command: int
    text: str
    activations: int | None
    seconds: float
    since: list[float] = field(default_factory=list)
    after: int | None = None
    """Bytes of activations in the first round after it, before any later change."""


class Checkpointing:
    """Turns activation checkpointing of modules on and off, and emits the results."""

    def __init__(self, context: ProbeContext, step_sampler: StepSampler) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._step_sampler = step_sampler
        self._step_time = step_sampler.step_time
        self._checkpoints: CheckpointedModules = step_sampler.checkpoints
        self._trials: dict[int, tuple[_Receipt, int]] = {}
        """Command id -> the receipt to begin, and the number of steps that the trial has been pending."""
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
        on = self._checkpoints.get(module) is not None
        if command.on is on:
            raise CommandRefused(
                f"{path or 'the model'} is {'' if on else 'not '}checkpointed{' already' if on else ''}"
            )
        if not command.on:
            return self._off(module, path, command.id)
        self._refuse(index, module, tree)
        inner = [info.path for each, info in enumerate(tree.modules) if index in ancestors(each, tree)
                 and (live := tree.module_refs[each]()) is not None and self._checkpoints.get(live)]  # fmt: skip
        self._on(module, path, command.id)
        note = f"; {' and '.join(inner[:3])} within it count again when it no longer is" if inner else ""
        twice = _hooks_run_again(module)
        return CommandResult(
            f"checkpoints {path}, if this step's trial agrees{note}{twice}", (), self._undo(module, path)
        )

    def _on(self, module: nn.Module, path: str, command: int) -> None:
        self._checkpoints.add(module, path, command)
        self._trials[command] = (_Receipt(command, path, None, self._step_time.typical), 0)

    def _off(self, module: nn.Module, path: str, command: int) -> CommandResult:
        wanted = self._checkpoints.get(module)
        self._checkpoints.remove(module)
        if wanted is not None and wanted.agreed:
            self._begin(_Receipt(command, path, self._step_sampler.activations, self._step_time.typical))
        if wanted is not None:
            self._trials.pop(wanted.command, None)
        reference, agreed = weakref.ref(module), wanted is not None and wanted.agreed

        def again() -> CommandResult:
            live = reference()
            if live is None:
                return CommandResult(f"{path} is gone", ())
            if self._checkpoints.get(live) is None:
                self._checkpoints.add(live, path, command, agreed=False)
                self._trials[command] = (_Receipt(command, path, None, self._step_time.typical), 0)
            return CommandResult(f"checkpoints {path} again", ())

        return CommandResult(f"no longer checkpoints {path}", (), again if agreed else None)

    def _undo(self, module: nn.Module, path: str) -> Callable[[], CommandResult]:
        reference = weakref.ref(module)

        def undo() -> CommandResult:
            live = reference()
            if live is None or self._checkpoints.get(live) is None:
                return CommandResult(f"{path} is not checkpointed any longer", ())
            done = self._off(live, path, self._checkpoints.wanted[id(live)].command)
            return CommandResult(done.text, ())

        return undo

    def _refuse(self, index: int, module: nn.Module, tree: ModuleTree) -> None:
        path = tree.modules[index].path
        around = ancestors(index, tree)
        if not around:
            raise CommandRefused(
                "checkpointing the whole model saves nothing: backward would keep all of it again at once"
            )
        if getattr(module.forward, "__func__", None) is nn.Module.forward:
            raise CommandRefused(f"a {type(module).__name__} is not called itself: checkpoint what is in it")
        if not checkpoint_rules.HAS_CHECKPOINT_STATE:
            raise CommandRefused("this version of PyTorch does not show when that is safe")
        live = {each: found for each in around if (found := tree.module_refs[each]()) is not None}
        if any(map(is_scripted, module.modules())):
            raise CommandRefused(f"{path} is TorchScript's: its code cannot be called in parts")
        wrapped = {tree.index_of(wrapper) for ref in tree.wrapper_refs if (wrapper := ref()) is not None}
        below = range(index, index + tree.modules[index].subtree_modules)
        if any(map(compiled_in_place, [*module.modules(), *live.values()])) or wrapped & {*around, *below}:
            raise CommandRefused(f"{path} is compiled: what its code keeps is the compiler's to say")
        outer = next((tree.modules[each].path for each, found in live.items() if self._checkpoints.get(found)), None)
        if outer is not None:
            raise CommandRefused(f"it is within {outer}, which is checkpointed")
        for found in live.values():
            kinds = {kind.__name__ for kind in type(found).__mro__}
            if kinds & set(_GATHERING):
                raise CommandRefused(f"under {type(found).__name__} each computation gathers parameters from all ranks")
            if isinstance(found, nn.parallel.DistributedDataParallel) and getattr(found, "static_graph", False):
                raise CommandRefused("DistributedDataParallel was constructed with static_graph=True")

    def settle(self, step: int) -> None:
        """Conclude trials and emit receipts at a step boundary."""
        for receipt in list(self._receipts):
            receipt.since.append(self._step_time.recent[-1] if self._step_time.recent else 0.0)
            if len(receipt.since) <= self._view.round_length:
                receipt.after = self._step_sampler.activations
            if len(receipt.since) >= RECEIPT_STEPS * self._view.round_length:
                self._receipts.remove(receipt)
                self._emit(ReceiptTaken(self._clock.at(), step, receipt.command, self._words(receipt), True))
        for command, (receipt, waited) in list(self._trials.items()):
            wanted = next((each for each in self._checkpoints.wanted.values() if each.command == command), None)
            if wanted is None:
                del self._trials[command]
            elif wanted.trial is not None:
                del self._trials[command]
                self._conclude(wanted, receipt, step)
            elif waited >= PATIENCE * self._view.round_length:
                del self._trials[command]
                self._give_up(wanted, f"it was not called while autograd records in {waited} steps", step)
            else:
                self._trials[command] = (receipt, waited + 1)
        self._emit_changes(step)

    def _conclude(self, wanted: Wanted, receipt: _Receipt, step: int) -> None:
        trial, wanted.trial = wanted.trial, None
        objection = trial.finish_step() if trial is not None else None
        if objection is not None or trial is None:
            self._give_up(wanted, objection or "it was not tried", step)
            return
        wanted.agreed, wanted.moving = True, trial.moving
        receipt.activations = self._step_sampler.activations
        self._begin(receipt)
        self._step_sampler.toggled(step)

    def _give_up(self, wanted: Wanted, why: str, step: int) -> None:
        module = wanted.module()
        if module is not None:
            self._checkpoints.remove(module)
        text = f"{wanted.path} is not checkpointed: {why}"
        self._emit(ReceiptTaken(self._clock.at(), step, wanted.command, text, False))

    def _begin(self, receipt: _Receipt) -> None:
        # Receipts of several changes at one boundary each include the effect of all of them.
        self._receipts.append(receipt)

    def _words(self, receipt: _Receipt) -> str:
        parts = []
        if receipt.activations is not None and receipt.after is not None:
            parts.append(f"activations {size_text(receipt.activations)} → {size_text(receipt.after)}")
        if receipt.seconds > 0:
            after = statistics.median(receipt.since)
            # "about", since other load on the machine may affect so few steps more than the change does.
            parts.append(f"step about {receipt.seconds * 1e3:.3g} → {after * 1e3:.3g} ms")
        return f"{receipt.text}: {', '.join(parts) or 'nothing was measured'}"

    def _indices(self) -> tuple[int, ...]:
        tree = self._view.tree
        live = [(each, each.module()) for each in self._checkpoints.wanted.values()]
        indices = (tree.index_of(module) for each, module in live if each.agreed and module is not None)
        return tuple(sorted(index for index in indices if index >= 0))

    def _emit_changes(self, step: int) -> None:
        indices = self._indices()
        if indices != self._emitted:
            self._emitted = indices
            self._emit(CheckpointingChanged(self._clock.at(), step, indices))


def _hooks_run_again(module: nn.Module) -> str:
    """Return a note if the script's own forward hooks will be called once more in backward."""
    hooked = sum(bool(vars(each)["_forward_hooks"] or vars(each)["_forward_pre_hooks"]) for each in module.modules())
    return (
        f"; forward hooks of {hooked} module{'s' if hooked != 1 else ''} in it run again in backward" if hooked else ""
    )
