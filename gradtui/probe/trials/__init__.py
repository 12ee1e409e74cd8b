"""A try of changes: the run trains on the same batches of its DataLoader without them and with each of them.

The batches of the first side are kept as the script takes them (`batches.py`), and given again to each further side. What a
side has measured is in `sides.py`; their order is that of `commands/try_sides.py`. An exception ends the side with a change in
which it is raised, and not the script (`failed_calls.py`). After its steps each side goes over batches that training does not
use (`held_aside.py`). Training thread only.
"""

from gradtui.probe.trials.batches import Again, BatchesGivenAgain, NotTheSameError
from gradtui.probe.trials.copied_batch import CopiedBatch
from gradtui.probe.trials.epoch_ends import between_epochs
from gradtui.probe.trials.failed_calls import FailedCalls
from gradtui.probe.trials.held_aside import EvaluationData, NoneHeldAsideError, held_aside
from gradtui.probe.trials.sides import Side, rates_differ, rates_of

__all__ = [
    "Again",
    "BatchesGivenAgain",
    "CopiedBatch",
    "EvaluationData",
    "FailedCalls",
    "NoneHeldAsideError",
    "NotTheSameError",
    "Side",
    "between_epochs",
    "held_aside",
    "rates_differ",
    "rates_of",
]
