"""Compare two runs. Pure: plain data in, plain data out.

This package owns what is compared, how, and the thresholds of `gradtui compare`. `export` writes a comparison in formats.
"""

from gradtui.records.comparison.collector import SeriesCollector
from gradtui.records.comparison.compare import Comparison, Row, compare
from gradtui.records.comparison.extraction import run_figures
from gradtui.records.comparison.figures import Intervention, RunFigures
from gradtui.records.comparison.finding_changes import FindingPair
from gradtui.records.comparison.module_groups import MAX_GROUPS
from gradtui.records.comparison.resumed_run import Compared, ResumableRun, Resumption, resumption
from gradtui.records.comparison.statistics import Figure
from gradtui.records.comparison.thresholds import QUANTITIES, Threshold, ThresholdError, Verdict, threshold_of
from gradtui.records.comparison.training import Training, TrainingDifference

__all__ = [
    "MAX_GROUPS",
    "QUANTITIES",
    "Compared",
    "Comparison",
    "Figure",
    "FindingPair",
    "Intervention",
    "ResumableRun",
    "Resumption",
    "Row",
    "RunFigures",
    "SeriesCollector",
    "Threshold",
    "ThresholdError",
    "Training",
    "TrainingDifference",
    "Verdict",
    "compare",
    "resumption",
    "run_figures",
    "threshold_of",
]
