"""Which side of a metric is the better one, by the words of its name. Pure."""

from __future__ import annotations

import re
from typing import Literal

BetterSide = Literal["lower", "higher"]

_LOWER = frozenset((
    "loss", "losses", "error", "err", "perplexity", "ppl", "nll", "mse", "rmse", "mae", "mape", "wer", "cer", "eer", "fid",
    "bpb", "bpc", "bpd", "ce", "bce", "lpips", "brier", "ece",
))  # fmt: skip
_HIGHER = frozenset((
    "acc", "accuracy", "top1", "top5", "f1", "precision", "recall", "auc", "auroc", "auprc", "ap", "map", "map50", "iou",
    "miou", "dice", "bleu", "rouge", "rouge1", "rouge2", "rougel", "meteor", "r2", "psnr", "ssim", "mcc", "kappa",
    "ndcg", "mrr", "reward", "elbo",
))  # fmt: skip
_WORDS = re.compile(r"[^\W_]+")


def better_side(name: str) -> BetterSide | None:
    """Return which values of a metric are the better ones; None if its name does not say so, or says both."""
    words = {word.casefold() for word in _WORDS.findall(name)}
    is_lower, is_higher = bool(words & _LOWER), bool(words & _HIGHER)
    if is_lower == is_higher:
        return None
    return "lower" if is_lower else "higher"
