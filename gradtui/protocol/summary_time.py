"""The parts of `RunSummary` about time: where that of the loop went, what was processed in it, and the load of the machine."""

from __future__ import annotations

from collections.abc import Mapping

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import Number


@dataclass(frozen=True)
class StepPartTime:
    """Host time of one part of the training loop."""

    seconds: Number
    """As it would be without gradtui's work in sampled steps."""
    share: Number
    """Of the script's time in the loop, a fraction of 1."""
    median_seconds: Number
    p95_seconds: Number
    """Of the newest steps that were not sampled: the median of a step, and the 95th percentile."""


@dataclass(frozen=True)
class ModuleTiming:
    """How the times of modules were measured."""

    sampled_steps: int
    """From how many they are."""
    seconds: Number
    """What timing took of each."""
    on_device: bool
    """Whether they are times of a CUDA device, between events on its stream; otherwise host time."""


@dataclass(frozen=True)
class StepTime:
    """Where the time of the training loop went, from the end of the first step on."""

    seconds: Number
    """Of the script."""
    gradtui_seconds: Number
    """What gradtui's hooks took besides."""
    steps: int
    verdict: str
    """What most of it went to, in words; empty if nothing stands out."""
    parts: Mapping[str, StepPartTime]
    """By the name of the part: `wait` for the DataLoader, `prepare` from a batch's arrival to the forward, `other` the script's
    own code."""
    num_workers: int | None
    """Of the DataLoader; None where there is none."""
    modules: ModuleTiming | None
    """None where no module was timed."""


@dataclass(frozen=True)
class Throughput:
    """What the steps of this process did in a second on average, from the end of the first one on, without gradtui's time."""

    steps_per_second: Number
    samples_per_second: Number
    samples_are_counted: bool | None
    """Whether each batch was counted. Otherwise the inputs of sampled steps stand for those of all steps."""
    samples_per_step: Number
    tokens_per_second: Number
    """Of sequences of integers, such as `input_ids`."""
    flops_per_second: Number
    """Floating-point operations of the products in forward and backward."""
    flops_bound: str | None
    """`exact`, `about` where steps differ in size, or `at least` where some products cannot be counted."""
    flops_per_step: Mapping[str, int]
    """By the dtype in which the device multiplies: those of the recorded step."""
    share_of_peak: Number
    """Model FLOPs utilisation, a fraction of 1. None where the peak of the device is unknown."""
    first_step_seconds: Number
    newest_step_seconds: Number
    """The median time of the first and of the newest steps."""
    in_words: str = ""


@dataclass(frozen=True)
class DeviceLoad:
    """How the device and the host were while the run trained."""

    busy: Number | None
    """The share of the time in which the device ran a kernel, of any process; None without NVML."""
    temperature: int | None
    """The highest, in °C."""
    watts: Number | None
    """The mean."""
    throttled_seconds: Mapping[str, Number]
    """For how long something slowed the device down: `power cap`, `heat`, `power brake`, `slowdown`."""
    cores_used: Number | None
    """CPU time of the process divided by the time."""
    cores: int | None
    """The cores that it may use."""
    threads: int | None
    """Of torch, for one operation."""
    in_words: str = ""
    """Of the device; empty without NVML."""
    cores_in_words: str = ""
