"""What is known of the work of steps: their samples. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol import events as ev


@dataclass
class StepWork:
    """The newest events about what steps process; None before the first."""

    samples: ev.SamplesMeasured | None = None
