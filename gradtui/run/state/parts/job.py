"""The ranks of a job, as far as its viewer knows them. The reducer builds it from the events of the ranks."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command
from gradtui.protocol.vocabulary import ParameterInfo, Phase
from gradtui.run.state.series import RowHistory, Series, joint_norm

CHECKS_KEPT = 32
"""Measurements of what ranks must have in common that are kept per rank until all ranks have made them: ranks reach the same
step, and their events reach the viewer, at different times. Equal ones share their values."""
NORMS_KEPT = 8
"""Measured steps whose gradient norms are kept per rank, for the same reason."""
SILENT_S = 3.0
"""Seconds without a sign of life after which a rank is called silent: a sign comes every second."""


Outline = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[str, ...]]
"""The path and shape of each parameter, and the path of each buffer."""


@dataclass
class RankRecord:
    """What is known of one rank. `generation` counts the restarts of the launcher; a new one begins a new record."""

    rank: int
    generation: int
    local_rank: int
    host: str
    pid: int
    joined_at: float
    """Seconds of the viewer's run, as `heard_at` and `left_at`."""
    heard_at: float
    left_at: float | None = None
    left_reason: str = ""
    is_over: bool | None = None
    """Whether its process has ended, once it has left; None if the viewer cannot know."""
    ended: ev.RunEnded | None = None
    failure: ev.RankFailure | None = None
    """What the launcher says of its failure."""
    backend: str | None = None
    """Of the default process group; None while the script has initialised none."""
    step: int = 0
    micro_steps: int = 0
    steps_per_second: float | None = None
    phase: Phase = Phase.LOAD
    phase_seconds: dict[Phase, float] = field(default_factory=dict)
    """A moving mean of the host time of each phase in a step."""
    paused: bool = False
    is_silent: bool = False
    """Whether the log says that it is silent."""
    loss: float | None = None
    norm: float | None = None
    """Of all gradients of this rank at `norm_step`; of sharded parameters, of the part that the rank has."""
    norm_step: int | None = None
    totals: dict[int, float] = field(default_factory=dict)
    """By step: that norm, of the steps in `norms` and of `JobState.common_step`."""
    parameters: tuple[ParameterInfo, ...] = ()
    buffers: tuple[str, ...] = ()
    """Their paths."""
    outline: Outline = ((), ())
    """What all ranks must have in common of the models. Ranks with equal models have the same object."""
    listing: int | None = None
    norms: list[tuple[int, tuple[float | None, ...]]] = field(default_factory=list)
    """Measured steps, and the norm of each parameter in them: from the newest step on that all ranks have measured."""
    checks: list[ev.ReplicasMeasured] = field(default_factory=list)
    """Measurements of what ranks must have in common, after the newest step that was compared."""
    memory: dict[Phase, ev.MemoryMeasured] = field(default_factory=dict)
    """The last breakdown at the end of each phase."""
    device: ev.DeviceSampled | None = None
    step_times: ev.StepTimesMeasured | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the viewer still receives its events."""
        return self.left_at is None

    @property
    def exit_code(self) -> int | None:
        """The exit code as the rank has said, or else the launcher; None if neither has."""
        return self.ended.exit_code if self.ended is not None else self.failure.exit_code if self.failure else None

    def seconds_silent(self, now: float) -> float:
        """Return the seconds since the viewer has heard from the rank, at the time `now` of the viewer's run."""
        return max(0.0, now - self.heard_at)


@dataclass(frozen=True)
class NormRange:
    """The norm of one gradient on all ranks at one step. A norm that is not finite counts as the highest."""

    step: int
    low: float
    high: float
    low_rank: int
    high_rank: int
    outlier: int | None
    """The rank whose norm is furthest from the median, if norms differ; the first one whose norm is not finite."""
    missing: tuple[int, ...] = ()
    """The ranks on which there is no gradient, though others have one."""


@dataclass
class WholeNorms:
    """The gradient norms of whole parameters of which ranks have parts, at the steps that all ranks have measured."""

    step: int | None = None
    norms: tuple[float | None, ...] | None = None
    """Of all parameters, as in `TreeState.norms`: also of those that are not sharded."""
    history: RowHistory = field(default_factory=RowHistory)
    total: Series = field(default_factory=Series)

    def take(self, step: int, norms: tuple[float | None, ...]) -> None:
        """Take the norms of a later step."""
        self.step, self.norms = step, norms
        self.history.append(step, norms)
        total = joint_norm(norms)
        if total is not None:
            self.total.append(step, total)


@dataclass
class ProposalRecord:
    """A command that the viewer has proposed to all ranks."""

    command: Command
    proposal: int
    """The id of the newest proposal of it."""
    at_step: int
    answers: dict[int, ev.ProposalAnswered] = field(default_factory=dict)
    """By rank."""
    outcomes: dict[int, str] = field(default_factory=dict)
    """By rank: what the rank has done, empty if it was carried out, else the reason in words."""
    confirmed: bool | None = None
    """None while it is open."""
    is_uneven: bool = False
    """Some ranks have carried it out, and others could not."""
    reason: str = ""


Kind = Literal["models", "trainable", "owned", "rates", "checksums", "buffers"]
"""What ranks must have in common: their models, and the fields of `ReplicasMeasured`."""


@dataclass
class Divergence:
    """Something that all ranks must have in common, and that has differed."""

    kind: Kind
    equal_step: int | None
    """The last step at which they are known to be equal; None if they never were."""
    step: int
    """The first step at which they are known to differ."""
    compared: tuple[int, ...]
    """The ranks that were compared."""
    ranks: tuple[int, ...]
    """The ranks that differ from most, or from the lowest rank where no value is that of most."""
    names: tuple[str, ...]
    """The paths of the parameters or buffers that differ; of learning rates, optimizers and groups by their number."""
    values: tuple[str, ...]
    """What the first of `names` is on each of the ranks in `compared`, in words; empty where there are no words for it."""
    distinct: int = 2
    """Into how many parts the ranks fall, by the name for which they are most."""
    last_step: int = 0
    """The last step at which they are known to differ."""
    over_step: int | None = None
    """The step at which they were found to be equal again; None while they differ."""
    equal_checks: int = 0
    """How many times in a row they were found to be equal since then."""


@dataclass
class JobState:
    """The ranks of a job."""

    size: int = 0
    """The number of ranks, as they have said; 0 while unknown."""
    generation: int = 0
    ranks: dict[int, RankRecord] = field(default_factory=dict)
    former: list[RankRecord] = field(default_factory=list)
    """The records of earlier generations, the newest last."""
    shown: int | None = None
    """The rank whose state is that of the run: the lowest one, until the user chooses another."""
    is_chosen: bool = False
    """Whether the user has chosen it."""
    own: int | None = None
    """The rank that is the process of the viewer itself; None if it is none of them."""
    earlier_interventions: int = 0
    """Interventions in the earlier generations."""
    now: float = 0.0
    """Seconds of the viewer's run at the newest event."""
    awaited: int | None = None
    """A rank that had not measured the norms of the newest step when that was looked for."""
    holders: list[int] | None = None
    """Per parameter of the present models: on how many ranks each part of it is (`rank_norms.holders_of`); None if unknown."""
    common_step: int = 0
    """The newest step whose gradient norms all ranks have measured."""
    unlike_norms: dict[int, NormRange] = field(default_factory=dict)
    """By index of the parameter: replicas whose norms differ noticeably between the ranks at `common_step`."""
    whole: WholeNorms = field(default_factory=WholeNorms)
    """The norms of whole parameters; empty if ranks share none."""
    proposals: dict[int, ProposalRecord] = field(default_factory=dict)
    """By id of the command: the newest ones."""
    divergences: dict[Kind, Divergence] = field(default_factory=dict)
    """By kind: the newest divergence of each."""
    divergence_changes: int = 0
    """Grows when a divergence begins, changes or ends."""
    equal_steps: dict[Kind, int] = field(default_factory=dict)
    """By kind: the last step at which all ranks were found to be equal."""
    has_replicas: bool = False
    """Whether any rank has parameters that `DistributedDataParallel` keeps equal."""
    failures: tuple[ev.RankFailure, ...] = ()
    """What the launcher says of the ranks that have failed, the first one first."""
    compared_step: int = 0
    """The last step at which what all ranks must have in common was compared."""

    @property
    def records(self) -> list[RankRecord]:
        """All ranks, those of earlier generations first, in order."""
        return [*self.former, *(self.ranks[rank] for rank in sorted(self.ranks))]

    @property
    def live(self) -> list[RankRecord]:
        """The connected ranks whose run has not ended, in order."""
        records = (self.ranks[rank] for rank in sorted(self.ranks))
        return [each for each in records if each.is_connected and each.ended is None]
