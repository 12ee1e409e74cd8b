"""What a script saves of a training, and what of it a run has again that continues from there."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.measurements import Event


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """A parameter group of a saved optimizer."""

    size: int
    names: tuple[str, ...]
    """Of its members in their order, within their model; an empty text for one that is in no module. Empty if unknown."""
    frozen: tuple[int, ...]
    """The places of the members that were frozen."""
    learning_rate: float | None


@dataclass(frozen=True, slots=True)
class SavedOptimizer:
    """The state of an optimizer in what was saved."""

    digest: str
    """Of its state and of the members of its groups, by place."""
    type_name: str
    """Empty if it is of no living optimizer."""
    groups: tuple[SavedGroup, ...]
    tensors: int
    """Number of the parameters that have state."""
    updates: int | None
    """The steps that it has made, by its own counter; None where its state has none."""


@dataclass(frozen=True, slots=True)
class SavedScheduler:
    """A scheduler of the run at the time of saving."""

    type_name: str
    last_epoch: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """The script has called `torch.save` with the state of an optimizer, a model, a scheduler or a random generator."""

    file: str
    """Empty if it was saved to a buffer."""
    digest: str
    """Of the structure of what was saved, and of some of its values. It is the same when a file is loaded."""
    script: str
    process: int
    optimizers: tuple[SavedOptimizer, ...]
    """Those in what was saved."""
    schedulers: tuple[SavedScheduler, ...]
    """Those of the run, whether they were saved or not."""
    has_schedulers: bool
    """Some were saved."""
    has_random: bool
    """The state of torch's random generator for the CPU was saved."""
    weights: str
    """A checksum of the trainable and frozen parameters of all models; empty if none was listed."""
    tensors: int
    """Number of the parameters that the checksum is of."""
    rank: int = 0
    """The rank that has saved it, in a job of several."""


@dataclass(frozen=True, slots=True)
class NewOptimizerState:
    """State of an optimizer that begins anew although what was loaded has it."""

    tensors: int
    """Number of parameters whose state is new."""
    of_tensors: int
    """Number of the optimizer's trainable parameters."""
    saved_tensors: int
    """Number of the parameters whose state was loaded."""
    updates: int | None
    """`SavedOptimizer.updates` of what was loaded."""
    file: str
    how: str
    """`unused`: no optimizer has it. `other`: another optimizer of these parameters has it, or had it and is gone.
    `frozen`: the optimizer has what was loaded, in which parameters that train now were frozen, and have no state."""
    paths: tuple[str, ...] = ()
    """The first of these parameters."""


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A scheduler that begins at 0 although it did not stand there when the training was saved."""

    type_name: str
    last_epoch: int
    """Where it stood."""
    was_saved: bool
    """It is in what was loaded."""
    file: str
    saved_rate: float | None
    """The learning rate of the optimizer's first group as it was saved, and as it is in the first step."""
    rate: float | None


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """An optimizer is about to make its first step, after the script has loaded what was saved of a training."""

    optimizer: int
    """Its index."""
    files: tuple[str, ...]
    """Empty texts stand for buffers."""
    digests: tuple[str, ...]
    """`CheckpointSaved.digest` of what was loaded."""
    saved_step: int | None
    """The step after which it was saved; None if gradtui did not watch that run."""
    is_restored: bool
    """The optimizer has state that was loaded."""
    same_script: bool
    """The same script saved it in another process, and the learning rate is one that the optimizer had then."""
    weights: str
    tensors: int
    learning_rates: tuple[float | None, ...]
    """Of its groups."""
    new_state: NewOptimizerState | None
    schedules: tuple[NewSchedule, ...]
    schedule_goes_on: bool
    """A scheduler stands where one that was loaded stood."""
    random_file: str | None
    """The file with the state of the random generator for the CPU; None if none of them has it, or nothing certain is known."""
    random_draws: int | None
    """The random numbers of 32 bits that were drawn since that state; None if the generator does not continue from there."""
    site: CallSite | None
    """Where the newest of the files was loaded."""
    generators_lost: tuple[str, ...] = ()
    """The names of other random generators that do not continue from a loaded state, for which that is certain."""
    generators_file: str = ""
    """The newest file that has states of such generators, if some are lost."""


@dataclass(frozen=True, slots=True)
class GroupsRefused(Event):
    """`Optimizer.load_state_dict` has raised, because groups of the optimizer have other sizes than those of the state."""

    optimizer: int
    type_name: str
    group: int
    """The first such group; -1 if the numbers of groups differ."""
    own: int
    """Members of this group, or the number of groups."""
    saved: int
    """The same of the state."""
    names_known: bool
    """The names of the members of the state are known."""
    only_own: tuple[str, ...]
    """The first members that only the optimizer has, in any group; all of this group if `names_known` is False."""
    only_own_count: int
    only_saved: tuple[str, ...]
    """The first members that only the state has."""
    only_saved_count: int
    moved: tuple[str, ...]
    """The first members of both that are in another group of the optimizer."""
    file: str
    saved_step: int | None
    site: CallSite | None


@dataclass(frozen=True, slots=True)
class FirstBatch(Event):
    """The batch of the first step after the script has saved or loaded a training. `step` is the number of steps before it."""

    optimizer: int
    digest: str
    """Of its structure and of some of its values; empty if the script has released it, or no DataLoader has yielded it."""
