"""A try of changes: the run trains on the same batches of its DataLoader without them and with each of them.

The batches of the first side are kept as the script takes them (`batches.py`), and given again to each further side. What a
side has measured is in `sides.py`; their order is that of `commands/try_sides.py`. An exception ends the side with a change in
which it is raised, and not the script (`failed_calls.py`). Training thread only.
"""

from gradtui.probe.trials.batches import Again, BatchesGivenAgain, NotTheSameError
from gradtui.probe.trials.epoch_ends import between_epochs
from gradtui.probe.trials.failed_calls import FailedCalls
from gradtui.probe.trials.sides import Side, rates_differ, rates_of

__all__ = [
    "Again",
    "BatchesGivenAgain",
    "FailedCalls",
    "NotTheSameError",
    "Side",
    "between_epochs",
    "rates_differ",
    "rates_of",
]
