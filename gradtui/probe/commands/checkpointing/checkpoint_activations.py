"""Apply activation checkpointing on command: refusals, and the result of the trial.

Training thread only.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.activation_checkpointing import Trial, Wanted
from gradtui.probe.commands.checkpointing.trial_vote import PATIENCE, TrialVote
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.receipts.receipts import Baseline, Receipts
from gradtui.probe.commands.selections import module_at
from gradtui.probe.commands.wrappers import SHARDED
from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused, CommandResult, ranks
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import compiled_in_place
from gradtui.probe.torch_private.rendezvous import NoStoreError, job_store
from gradtui.probe.torch_private.saved_hooks import HAS_CHECKPOINT_STATE
from gradtui.protocol.commands import SetCheckpointing
from gradtui.protocol.events import CheckpointingChanged, ReceiptTaken
from gradtui.run.text import plural, refusals, trial_text

_FLATTENED = tuple(name for name in SHARDED if name != "FSDPModule")
"""Of the classes in `SHARDED` those within which a module's parameters are not its own. `fully_shard` has gathered them before
a module within it is called, and again before its backward."""

_numbers = itertools.count()
"""Numbers the trials among several ranks. It is the same on all of them, since all begin the same trials."""


@dataclass
class _Pending:
    """A trial that is still to come."""

    command: int
    path: str
    baseline: Baseline
    """The measurements before the command: the step of the trial computes some of the forward twice."""
    step: int
    """The last step before the command."""
    waited: int = 0
    """Number of steps that the trial has been pending."""
    vote: TrialVote | None = None
    """How all ranks decide; None where this is no rank of several."""


class Checkpointing:
    """Turns activation checkpointing of modules on and off, and emits the results."""

    def __init__(
        self, context: ProbeContext, step_sampler: StepSampler, receipts: Receipts, crossing: Crossing
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self._step_sampler = step_sampler
        self._receipts, self._crossing = receipts, crossing
        self._checkpoints = step_sampler.checkpoints
        self._trials: dict[int, _Pending] = {}
        """By id of the command."""
        self._emitted: tuple[int, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether anything is pending at the next step boundary."""
        return bool(self._trials) or (bool(self._emitted) and self._emitted != self._indices())

    def tree_changed(self) -> None:
        """Emit the checkpointed modules again, since modules have new indexes."""
        self._emitted = (-1,) if self._checkpoints.wanted else ()

    def set(self, command: SetCheckpointing) -> CommandResult:
        """Turn checkpointing of the named module on or off. Raises `CommandRefused`."""
        tree = self._view.tree
        path, index, module = self.module_to_set(command)
        wanted = self._checkpoints.get(module)
        if wanted is not None:
            return self._off(module, wanted, path)
        within = range(index + 1, index + tree.modules[index].subtree_modules)
        inner = [
            tree.modules[each].path
            for each in within
            if (live := tree.module_refs[each]()) is not None and self._checkpoints.get(live) is not None
        ]
        undo = self._on(module, path)
        note = f"; {' and '.join(inner[:3])} within it count again when it no longer is" if inner else ""
        twice = _hooks_run_again(module)
        return CommandResult(f"{trial_text(path, ranks.world_size())}{note}{twice}", (), undo)

    def module_to_set(self, command: SetCheckpointing) -> tuple[str, int, nn.Module]:
        """Return the path, index and module to checkpoint, or to checkpoint no longer. Raises `CommandRefused`."""
        path, index, module = module_at(command.path, self._view.tree)
        is_on = self._checkpoints.get(module) is not None
        if command.on is is_on:
            raise CommandRefused(refusals.ALREADY_SO)
        if not is_on:
            self._refuse(index, module, self._view.tree)
        return path, index, module

    def _on(self, module: nn.Module, path: str) -> Callable[[], CommandResult]:
        """Begin the trial of a module. Return the function that undoes it."""
        command = self._crossing.command
        self._checkpoints.add(module, path, command)
        step, size = self._counter.steps, ranks.world_size()
        vote = None
        if size > 1:
            vote = TrialVote(f"trial/{next(_numbers)}/{step}/{path}", ranks.rank(), size, step + PATIENCE)
        self._trials[command] = _Pending(command, path, self._receipts.baseline(), step, vote=vote)
        reference = weakref.ref(module)

        def undo() -> CommandResult:
            live = reference()
            wanted = self._checkpoints.get(live) if live is not None else None
            if live is None or wanted is None:
                return CommandResult(f"{path} is not checkpointed any longer", ())
            return self._off(live, wanted, path)

        return undo

    def _off(self, module: nn.Module, wanted: Wanted, path: str) -> CommandResult:
        self._checkpoints.remove(module)
        self._trials.pop(wanted.command, None)
        if not wanted.agreed:
            return CommandResult(f"no longer checkpoints {path}", ())
        reference = weakref.ref(module)

        def again() -> CommandResult:
            live = reference()
            if live is None:
                return CommandResult(f"{path} is gone", ())
            if self._checkpoints.get(live) is None:
                self._on(live, path)
            return CommandResult(f"checkpoints {path} again", ())

        return CommandResult(f"no longer checkpoints {path}", (), again, is_measured=True)

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
        below = range(index, index + tree.modules[index].subtree_modules)
        # The script may have called `module.compile()` since the models were listed.
        if any(map(compiled_in_place, [*module.modules(), *live.values()])) or tree.compiled & {*around, *below}:
            raise CommandRefused(refusals.COMPILED)
        outer = next((tree.modules[each].path for each, found in live.items() if self._checkpoints.get(found)), None)
        if outer is not None:
            raise CommandRefused(refusals.within_checkpointed(outer))
        _refuse_wrapped(module, live.values())

    def settle(self, step: int) -> None:
        """Conclude trials at a step boundary."""
        self._trials = {
            command: pending for command, pending in self._trials.items() if self._is_pending(pending, step)
        }
        indices = self._indices()
        if indices != self._emitted:
            self._emitted = indices
            self._emit(CheckpointingChanged(self._clock.at(), step, indices))

    def _is_pending(self, pending: _Pending, step: int) -> bool:
        """Return whether the trial is still to come. Conclude it if it has been made, and give it up after a while."""
        wanted = next((each for each in self._checkpoints.wanted.values() if each.command == pending.command), None)
        if wanted is None:
            return False
        if pending.vote is not None:
            return self._is_undecided(pending, pending.vote, wanted, step)
        if wanted.trial is None:
            # Rounds of steps without a call of the module while autograd records.
            if pending.waited < PATIENCE * self._view.round_length:
                pending.waited += 1
                return True
            self._give_up(wanted, refusals.not_called(pending.waited), step)
            return False
        trial, wanted.trial = wanted.trial, None
        objection = trial.finish_step()
        if objection is not None:
            self._give_up(wanted, objection, step)
            return False
        self._agree(pending, wanted, trial, step)
        return False

    def _is_undecided(self, pending: _Pending, vote: TrialVote, wanted: Wanted, step: int) -> bool:
        """Return whether the ranks have not decided yet. The trial is kept until then, so that no other one is made."""
        trial = wanted.trial
        try:
            reason = vote.decide(step, None if trial is None else trial.finish_step() or "")
        except NoStoreError as error:
            reason = refusals.unknown_to_rank(error)
            job_store.given_up = job_store.given_up or refusals.missed_a_decision(step)
        if reason is None:
            return True
        wanted.trial = None
        if reason or trial is None:
            self._give_up(wanted, reason or refusals.not_called(PATIENCE), step)
        else:
            self._agree(pending, wanted, trial, step)
        return False

    def _agree(self, pending: _Pending, wanted: Wanted, trial: Trial, step: int) -> None:
        """Checkpoint the module from here on."""
        wanted.agreed, wanted.moving = True, trial.moving
        # Without a sample before the command, its trial's step is the best one.
        baseline = pending.baseline if pending.baseline.memories else None
        title = f"checkpoints {pending.path}"
        self._receipts.begin(
            pending.command, title, step, baseline=baseline, since=pending.step, is_of_activations=True
        )
        self._step_sampler.toggled(step)

    def _give_up(self, wanted: Wanted, why: str, step: int) -> None:
        module = wanted.module()
        if module is not None:
            self._checkpoints.remove(module)
        text = f"{wanted.path} is not checkpointed: {why}"
        self._emit(ReceiptTaken(self._clock.at(), step, wanted.command, text, False))

    def _indices(self) -> tuple[int, ...]:
        tree = self._view.tree
        live = [(each, each.module()) for each in self._checkpoints.wanted.values()]
        indices = (tree.index_of(module) for each, module in live if each.agreed and module is not None)
        return tuple(sorted(index for index in indices if index >= 0))


def _hooks_run_again(module: nn.Module) -> str:
    """Return a note if the script's own forward hooks will be called once more in backward."""
    hooked = sum(bool(vars(each)["_forward_hooks"] or vars(each)["_forward_pre_hooks"]) for each in module.modules())
    return f"; forward hooks of {plural(hooked, 'module')} in it run again in backward" if hooked else ""


def _is_any(module: nn.Module, names: Sequence[str]) -> bool:
    """Return whether one of these names is the class or a base of a module."""
    return any(kind.__name__ in names for kind in type(module).__mro__)


def _refuse_wrapped(module: nn.Module, around: Iterable[nn.Module]) -> None:
    """Refuse a module for what wraps it or is in it, if a second forward of it would communicate or break the wrapper."""
    around, within = list(around), list(module.modules())
    if any(_is_any(each, _FLATTENED) for each in (*around, *within)):
        raise CommandRefused(refusals.SHARDED)
    if any(_is_any(each, SHARDED) for each in within):
        raise CommandRefused(refusals.GATHERS)
    of_all = next((each for each in within if isinstance(each, nn.SyncBatchNorm)), None)
    if of_all is not None and ranks.world_size() > 1:
        raise CommandRefused(refusals.communicates(type(of_all).__name__))
