"""The ranks of a job: each rank's connection to the viewer, and the viewer's side of it.

This package owns what a viewer and the ranks say to each other, the proposals on which all ranks agree, and the link of a rank.
It knows neither torch nor a screen.
"""

from gradtui.job.commands import JobCommands, OwnCommands
from gradtui.job.hub import RankHub
from gradtui.job.link import LateRankLink, RankLink
from gradtui.job.proposals import Proposals

__all__ = ["JobCommands", "LateRankLink", "OwnCommands", "Proposals", "RankHub", "RankLink"]
