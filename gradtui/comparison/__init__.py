"""Compare two runs. Pure: plain data in, plain data out.

This package owns what is compared, how, and the thresholds of `gradtui compare`. `export` writes a comparison in formats.
"""

from gradtui.comparison.collector import SeriesCollector
from gradtui.comparison.compare import Comparison, Row, compare
from gradtui.comparison.extraction import run_figures
from gradtui.comparison.figures import Intervention, RunFigures
from gradtui.comparison.finding_changes import FindingPair
from gradtui.comparison.module_groups import MAX_GROUPS
from gradtui.comparison.statistics import Figure
from gradtui.comparison.thresholds import QUANTITIES, Threshold, ThresholdError, Verdict, threshold_of
from gradtui.comparison.training import Training, TrainingDifference

__all__ = [
    "MAX_GROUPS",
    "QUANTITIES",
    "Comparison",
    "Figure",
    "FindingPair",
    "Intervention",
    "Row",
    "RunFigures",
    "SeriesCollector",
    "Threshold",
    "ThresholdError",
    "Training",
    "TrainingDifference",
    "Verdict",
    "compare",
    "run_figures",
    "threshold_of",
]
