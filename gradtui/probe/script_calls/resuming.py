"""Compare a training before its first step with what the script has loaded of an earlier one. Runs on the training thread.

What counts is what the living objects have then, in whatever way it came there. Of what was loaded only figures are kept.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.memory import BatchTensor, noted, parts_of
from gradtui.probe.runtime import ByIdentity, ranks
from gradtui.probe.script_calls import fingerprints
from gradtui.probe.script_calls.loaded_files import LoadedFile, LoadedState, fits, saved_in, state_of
from gradtui.probe.script_calls.module_loads import ModuleLoads
from gradtui.probe.script_calls.other_generators import lost
from gradtui.probe.script_calls.random_position import draws_between, has_left
from gradtui.probe.script_calls.refused_groups import names_of, refused_groups
from gradtui.probe.script_calls.saved_contents import checksum_of, contents_of, groups_of, optimizer_digest
from gradtui.probe.script_calls.saved_trainings import (
    Budget,
    SavedTrainings,
    names_in,
    path_of,
    rate_of,
    script,
    updates_in,
)
from gradtui.probe.script_calls.schedulers import Schedulers
from gradtui.probe.script_calls.sites import name_within, site_of
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.probe.torch_private.unwrap import PLAIN
from gradtui.protocol.events import FirstBatch, NewOptimizerState, NewSchedule, RunResumed

_FILES = 16
"""Most files that are remembered until the first step: the newest ones."""
_CALLS = 100
"""Most steps after a load in which the first step of another optimizer may come."""
_BATCH_TENSORS, _PATHS = 8, 50


class Resuming:
    """Follows what the script loads until its optimizers make their first steps.

    `steps` returns the number of steps so far, with buffered ones.
    """

    def __init__(
        self, context: ProbeContext, loads: ModuleLoads, schedulers: Schedulers, steps: Callable[[], int]
    ) -> None:
        self._steps = steps
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter, self._loads, self._schedulers = context.counter, loads, schedulers
        self._saves, self._budget = SavedTrainings(context, schedulers), Budget()
        self._files: list[LoadedFile] = []
        self._seen: ByIdentity[Optimizer, bool] = ByIdentity()
        """The optimizers that have made a step since the newest load."""
        self._calls = 0
        """The calls of `before_step` since then."""
        self._is_new = False
        """The run had made no backward by then. PyTorch makes an empty step for distributed checkpoints, to have a
        state that they can be loaded into."""
        self._looks_for_weights = False
        """Whether weights may be those of a saved training that something has loaded which no hook sees."""
        self._has_saved = False
        """The script has saved something, and no step has followed so far."""
        self.is_waiting = False
        """The script has saved or loaded something, or may have, and no step has followed so far."""
        self._batch: list[BatchTensor] = []

    def reader_found(self) -> None:
        """The script has imported what may load weights unseen: compare them at the first step."""
        if not self._steps() and fingerprints.are_kept():
            self._looks_for_weights = self.is_waiting = True

    def saving(self, saved: Any, file: Any, *, is_sorted: bool = False) -> None:
        """Handle the start of `torch.save`, or of a function whose file does not keep the order of names (`is_sorted`)."""
        self._has_saved |= self._saves.saving(saved, file, is_sorted=is_sorted)
        self.is_waiting |= self._has_saved

    def loaded(self, loaded: Any, file: Any, *, is_sorted: bool = False) -> None:
        """Handle the end of `torch.load`, or of a function like it."""
        if not isinstance(loaded, Mapping) or not self._budget.is_left():
            return
        with self._budget:
            contents = contents_of(loaded, is_sorted=is_sorted)
            if not contents.is_of_training:
                return
            known = fingerprints.kept(contents.digest)
            self._make_room()
            self._files.append(
                LoadedFile(
                    path_of(file),
                    contents.digest,
                    known,
                    [state_of(each, known) for each in contents.optimizers],
                    [(frozenset(map(str, each)), int(each["last_epoch"])) for each in contents.schedulers],
                    [each.clone() for each in contents.random],
                    contents.generators,
                    site_of("load"),
                )
            )
        self._seen, self._calls, self.is_waiting = ByIdentity(), 0, True
        self._is_new = not self._counter.micro_steps and self._steps() <= len(self._models.live_optimizers())

    def optimizer_loading(self, optimizer: Optimizer, state: Any) -> list[str]:
        """Handle the start of `Optimizer.load_state_dict`. Return the names of its members by place; empty if unknown."""
        if groups_of(state) is None or not self._files:
            return []
        found = self._state(optimizer_digest(state))
        if found is None:
            return []
        found.user = weakref.ref(optimizer)
        return found.names

    def optimizer_refused(self, optimizer: Optimizer, state: Any) -> None:
        """Handle a `ValueError` of `Optimizer.load_state_dict`."""
        groups = groups_of(state)
        if groups is None:
            return
        found = self._state(optimizer_digest(state))
        file = next((each for each in self._files if found in each.states), None) if found is not None else None
        if found is not None:
            found.user = None
        saved = self._split(found.names, groups) if found is not None else [names_in(group) for group in groups]
        own = names_of(self._models.tree, optimizer)
        index = self._models.discovery.register_optimizer(optimizer)
        path, step = (
            (file.path, file.known.step if file.known is not None else None) if file is not None else ("", None)
        )
        event = refused_groups(
            self._clock.at(), self._counter.steps, index, optimizer, own, groups, saved, path, step, site_of("load")
        )
        if event is not None:
            self._emit(event)

    def batch_came(self, batch: Any) -> None:
        """Handle a batch that a DataLoader has yielded. It is remembered weakly."""
        self._batch = noted(parts_of(batch))[:_BATCH_TENSORS]

    def before_step(self, optimizer: Optimizer) -> None:
        """Handle the start of a step of an optimizer, if `is_waiting`."""
        index = self._models.discovery.register_optimizer(optimizer)
        self._calls += 1
        if operations_are_observed():  # by a mode, tracer or profiler of the script
            self._forget()
            return
        if self._looks_for_weights:
            self._looks_for_weights = False
            self._find_by_weights()
            if not self._files and not self._has_saved:
                self.is_waiting = False
                return
        if not self._files:
            self._emit_batch(index)
            self._batch, self.is_waiting, self._has_saved = [], False, False
        elif self._seen.get(optimizer) is None and (self._is_new or not self._counter.steps_of(index)):
            self._emit(self._resumed(optimizer, index))
            self._emit_batch(index)
        # One that continues after a load within the run has returned to an earlier state: that is no resumed run.
        self._seen.set(optimizer, True)
        if not self._are_others_to_come() or self._calls >= _CALLS:
            self._forget()

    def _forget(self) -> None:
        self.is_waiting = self._has_saved = self._looks_for_weights = False
        self._files, self._batch = [], []

    def _find_by_weights(self) -> None:
        """Find a saved training by the weights that the run has before its first step."""
        if any(each.known is not None for each in self._files):
            return
        if self._counter.steps or not self._budget.is_left():
            return
        with self._budget:
            parameters = self._saves.parameters()
            # Of sharded ones the values are not read.
            are_read = bool(parameters) and all(type(each) in PLAIN for each in parameters)
            found = fingerprints.with_weights(checksum_of(parameters), len(parameters)) if are_read else []
            # Those that this process has saved itself were never loaded. Before the first step the seed may have made them.
            found = [each for each in found if each.step and each.process != os.getpid()]
            # A step may have several files. The last one stands for all.
            found.sort(key=lambda each: (each.step, bool(each.optimizers)))
            for known in found[-_FILES:]:
                self._files.append(LoadedFile(known.file, known.digest, known, [], [], [], [], None))

    def _are_others_to_come(self) -> bool:
        """Return whether a living optimizer has made no step so far. The critic of a GAN makes some before the generator."""
        register, steps_of = self._models.discovery.register_optimizer, self._counter.steps_of
        return any(
            self._seen.get(each) is None and not steps_of(register(each)) for each in self._models.live_optimizers()
        )

    def _make_room(self) -> None:
        while len(self._files) >= _FILES:
            # A model may be saved in many files, which have nothing of its training.
            full = [each for each in self._files if each.states or each.schedulers or each.random or each.generators]
            self._files.remove(next((each for each in self._files if each not in full), self._files[0]))

    def _emit_batch(self, index: int) -> None:
        tensors = [each for one in self._batch if (each := one.view()) is not None]
        is_whole = tensors and len(tensors) == len(self._batch)
        digest = checksum_of(tensors) if is_whole else ""
        self._emit(FirstBatch(self._clock.at(), self._counter.steps, index, digest))

    def _resumed(self, optimizer: Optimizer, index: int) -> RunResumed:
        trainable = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
        new = [each for each in trainable if _is_new(optimizer, each)]
        given = [state for _, state in self._states() if state.user is not None and state.user() is optimizer]
        is_restored = bool(given) or any(_has_updates(optimizer, each) for each in trainable)
        parameters = self._saves.parameters()
        known = [each.known for each in self._files if each.known is not None]
        return RunResumed(
            self._clock.at(),
            self._counter.steps,
            index,
            tuple(each.path for each in self._files),
            tuple(each.digest for each in self._files),
            max((each.step for each in known), default=None),
            is_restored,
            self._is_of_same_script(optimizer),
            checksum_of(parameters),
            len(parameters),
            tuple(rate_of(group) for group in optimizer.param_groups),
            self._new_state(optimizer, trainable, new, given),
            tuple(self._new_schedules(optimizer, is_restored=is_restored)),
            self._schedule_goes_on(optimizer),
            *self._random(),
            self._files[-1].site,
            *self._other_generators(),
        )

    def _is_of_same_script(self, optimizer: Optimizer) -> bool:
        rate, own = rate_of(optimizer.param_groups[0]), script()
        return any(
            file.known is not None
            and file.known.script == own != ""
            and file.known.process != os.getpid()
            and any(rate in (each.rate, each.first_rate) for each in file.states)
            for file in self._files
        )

    def _states(self) -> Iterator[tuple[LoadedFile, LoadedState]]:
        return ((file, state) for file in self._files for state in file.states)

    def _state(self, digest: str) -> LoadedState | None:
        return next((state for _, state in self._states() if state.digest == digest), None)

    @staticmethod
    def _split(names: list[str], groups: list[Mapping[str, Any]]) -> list[tuple[str, ...]]:
        found, begin = [], 0
        for group in groups:
            end = begin + len(group["params"])
            found.append(tuple(names[begin:end]))
            begin = end
        return found

    def _new_state(
        self, optimizer: Optimizer, trainable: list[torch.Tensor], new: list[torch.Tensor], given: list[LoadedState]
    ) -> NewOptimizerState | None:
        if not new:
            return None
        if given:
            return self._were_frozen(new, trainable, given[0])
        if len(new) < len(trainable):
            return None
        for file, state in self._states():
            if not state.tensors or not fits(state, optimizer):
                continue
            user = state.user() if state.user is not None else None
            if state.user is not None:
                how = "other" if user is None or _share(user, optimizer) else ""
            else:
                loaded = sum(self._loads.has_loaded(each) for each in trainable)
                how = "unused" if 2 * loaded > len(trainable) else ""
            if how:
                return NewOptimizerState(len(new), len(trainable), state.tensors, state.updates, file.path, how)
        return None

    def _were_frozen(
        self, new: list[torch.Tensor], trainable: list[torch.Tensor], state: LoadedState
    ) -> NewOptimizerState | None:
        """Say which tensors train now, and were frozen when the optimizer was saved."""
        for file in self._files:
            saved = next((each for each in saved_in(file) if each.digest == state.digest), None)
            if saved is None:
                continue
            frozen = {group.names[at] for group in saved.groups for at in group.frozen if at < len(group.names)} - {""}
            paths = [
                name for each in new if (name := name_within(self._models.tree, each)) in frozen and name is not None
            ]
            if paths:
                figures = len(paths), len(trainable), state.tensors, state.updates
                return NewOptimizerState(*figures, file.path, "frozen", tuple(paths[:_PATHS]))
        return None

    def _new_schedules(self, optimizer: Optimizer, *, is_restored: bool) -> Iterator[NewSchedule]:
        living = [each for each in self._schedulers.living() if _is_of(each, optimizer)]
        rate = rate_of(optimizer.param_groups[0])
        told: list[Any] = []
        for file in self._files:
            saved_rate = next((each.rate for each in file.states), None)
            for names, stood_at in file.schedulers:
                alike = [each for each in living if names <= vars(each).keys()]
                for each in _at_zero(alike, stood_at, told):
                    told.append(each)
                    yield NewSchedule(type(each).__name__, stood_at, True, file.path, saved_rate, rate)
        if told or not is_restored or any(file.schedulers for file in self._files):
            return
        for file in self._files:
            for saved in file.known.schedulers if file.known is not None else ():
                alike = [each for each in living if type(each).__name__ == saved.type_name]
                for each in _at_zero(alike, saved.last_epoch, told):
                    told.append(each)
                    saved_rate = next((each.rate for each in file.states), None)
                    yield NewSchedule(saved.type_name, saved.last_epoch, False, file.path, saved_rate, rate)

    def _schedule_goes_on(self, optimizer: Optimizer) -> bool:
        living = [each for each in self._schedulers.living() if _is_of(each, optimizer)]
        return any(
            stood_at > 0 and getattr(each, "last_epoch", None) == stood_at and names <= vars(each).keys()
            for file in self._files
            for names, stood_at in file.schedulers
            for each in living
        )

    def _random(self) -> tuple[str | None, int | None]:
        """Return the newest file with a state of the random generator, and how many numbers were drawn since that state."""
        having = [file for file in self._files if file.random and _is_of_this_rank(file)]
        if not having:
            return None, None
        now = torch.default_generator.get_state()
        for file in reversed(having):
            for state in file.random:
                draws = draws_between(state, now)
                if draws is not None:
                    return file.path, draws
        has_left_all = all(has_left(state, now) for file in having for state in file.random)
        return (having[-1].path, None) if has_left_all else (None, None)

    def _other_generators(self) -> tuple[tuple[str, ...], str]:
        """Return the names of other generators that do not continue from any loaded state, and the newest file with some."""
        having = [file for file in self._files if file.generators and _is_of_this_rank(file)]
        found = tuple(lost(each for file in having for each in file.generators))
        return found, having[-1].path if found else ""


def _is_of_this_rank(file: LoadedFile) -> bool:
    """Return whether the random states in a file are those of this rank.

    In a job each rank has states of its own. The other ranks may load the file of the first one for its weights.
    """
    own = ranks.rank()
    return own == (file.known.rank if file.known is not None else 0)


def _is_new(optimizer: Optimizer, parameter: torch.Tensor) -> bool:
    entry = optimizer.state.get(parameter)
    if not isinstance(entry, Mapping) or all(value is None for value in entry.values()):
        return True
    # Adagrad has its state from the beginning.
    return updates_in(entry) == 0


def _has_updates(optimizer: Optimizer, parameter: torch.Tensor) -> bool:
    """Return whether a parameter has state of earlier steps. Some optimizers make theirs before the first one."""
    entry = optimizer.state.get(parameter)
    return isinstance(entry, Mapping) and (updates_in(entry) or 0) > 0


def _share(one: Optimizer, other: Optimizer) -> bool:
    own = {id(each) for group in one.param_groups for each in group["params"]}
    return any(id(each) in own for group in other.param_groups for each in group["params"])


def _is_of(scheduler: Any, optimizer: Optimizer) -> bool:
    found = getattr(scheduler, "optimizer", None)
    # Frameworks wrap the optimizer that steps in another.
    return found is optimizer or getattr(found, "optimizer", None) is optimizer


def _at_zero(schedulers: list[Any], stood_at: int, told: list[Any]) -> list[Any]:
    """Return the schedulers that begin at 0 if one of them stood elsewhere, and none stands there now."""
    stands = [getattr(each, "last_epoch", None) for each in schedulers]
    if stood_at <= 0 or any(type(each) is int and each >= stood_at for each in stands):
        return []
    found = [each for each, at in zip(schedulers, stands) if type(at) is int and at <= 0]
    return [each for each in found if not any(each is other for other in told)][:1]
