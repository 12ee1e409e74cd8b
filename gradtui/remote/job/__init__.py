"""The ranks of a job: each rank's connection to the viewer, and the viewer's side of it.

This package owns what a viewer and the ranks say to each other, the proposals on which all ranks agree, and the link of a rank.
It knows neither torch nor a screen.

Each rank sends what its own viewer has applied. The viewer of the job keeps one whole state, that of the rank that is shown,
and a light record of each other one (`RunState.job`). If the user chooses another rank, that rank sends its whole state
(`RankStateTaken`), and its events after that are applied to it. A child process joins when it trains: only then its process
group says which rank it is.
"""

from gradtui.remote.job.commands import JobCommands, OwnCommands
from gradtui.remote.job.hub import RankHub
from gradtui.remote.job.link import LateRankLink, RankLink
from gradtui.remote.job.proposals import Proposals

__all__ = ["JobCommands", "LateRankLink", "OwnCommands", "Proposals", "RankHub", "RankLink"]
