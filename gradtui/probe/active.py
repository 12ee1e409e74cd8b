"""The probe of this process, if there is one: torch can be tapped only once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradtui.probe.probe import Probe

_active: list[Probe] = []


def active_probe() -> Probe | None:
    """The attached probe, None if there is none."""
    return _active[-1] if _active else None


def set_active(probe: Probe | None) -> None:
    """Remember the attached probe, or that there is none any more."""
    _active[:] = [probe] if probe is not None else []
