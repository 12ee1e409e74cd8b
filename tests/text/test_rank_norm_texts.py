"""What the tree and the explanations say of norms on several ranks."""

from __future__ import annotations

import pytest
from helpers.explained import short
from helpers.jobs import Job, shards

from gradtui.run.explanation.details import rank_norms
from gradtui.run.explanation.row import shard_of
from gradtui.run.state.parts.job import NormRange
from gradtui.run.text.explanation.sentences import held_words, shard_words
from gradtui.run.text.rank_norms import differing_words, range_text, rank_norms_words


@pytest.mark.parametrize(
    ("found", "width", "text"),
    [
        (NormRange(1, 0.84, 1.2, 0, 3, 3), 16, "0.84–1.2 r3"),
        (NormRange(1, 0.8412, 1.234, 0, 3, 3), 16, "0.841–1.23 r3"),
        (NormRange(1, 1.234e-5, 0.01234, 0, 63, 63), 16, "1.2e-5–0.012 r63"),
        (NormRange(1, 1.2e-12, 3.4e-11, 0, 63, 63), 16, "1e-12–3e-11 r63"),
        (NormRange(1, 1.2e-120, 3.4e-119, 0, 1063, 1063), 16, "×28 r1063"),
        (NormRange(1, 0.5, float("nan"), 0, 1, 1), 16, "0.5–NaN r1"),
        (NormRange(1, 0.5, 0.5, 3, 3, 3, (0, 1, 2)), 16, "only r3"),
        (NormRange(1, 0.5, 0.5, 0, 0, 1, (1,)), 16, "not r1"),
        (NormRange(1, 0.5, 0.5, 0, 0, None, (1, 2)), 16, "2 without"),
    ],
)
def test_the_range_fits_into_its_column(found: NormRange, width: int, text: str) -> None:
    assert range_text(found, width) == text
    assert len(text) <= width


@pytest.mark.parametrize(
    ("found", "ranks", "text"),
    [
        (NormRange(1, 0.84, 1.2, 0, 1, 1), 2, "The norm differs between ranks: 0.840 on rank 0, 1.20 on rank 1"),
        (
            NormRange(1, 0.84, 1.2, 0, 3, 3), 4,
            "The norm differs between ranks: 0.840 on rank 0, 1.20 on rank 3; rank 3 is furthest from the others",
        ),
        (NormRange(1, 0.5, 0.5, 3, 3, 3, (0, 1, 2)), 4, "Only rank 3 has a gradient, of norm 0.500"),
        (NormRange(1, 0.5, 0.5, 0, 0, 1, (1,)), 4, "Rank 1 has no gradient, the others have one"),
        (NormRange(1, 0.5, 0.5, 0, 0, None, (1, 2)), 4, "Ranks 1, 2 have no gradient, the others have one"),
    ],
)  # fmt: skip
def test_how_norms_differ_in_words(found: NormRange, ranks: int, text: str) -> None:
    assert differing_words(found, ranks) == text


def test_explanation_says_what_norm_is_on_each_rank() -> None:
    job = Job(2)
    assert rank_norms_words(rank_norms(None, 0)) is rank_norms_words(rank_norms(job.job, 0)) is None
    for rank in range(2):
        job.norms(rank, 4, 1.0, 2.0 + rank)
    assert rank_norms_words(rank_norms(job.job, 0)) == "The norm is the same on all 2 ranks (step 4)."
    words = "The norm differs between ranks: 2.00 on rank 0, 3.00 on rank 1"
    assert rank_norms_words(rank_norms(job.job, 1)) == f"{words} (step 4)."
    assert f"{words}." in short(job.state, ~1)
    assert not [each for each in short(job.state, ~0) if "rank" in each]


def test_shard_sizes_are_of_rank_and_whole() -> None:
    job = shards((3, 1))
    first, second = job.state.tree.parameters
    assert shard_of([second]) is None
    # Of 4 elements of 4 bytes the rank holds 3; the other parameter is whole.
    assert held_words(shard_of([first])) == "Sharded: this rank holds 12 B of 16 B."
    assert held_words(shard_of([first, second])) == "Sharded: this rank holds 28 B of 32 B."
    assert (shard_words(shard_of([first])) or "").startswith(
        "Sharded: this rank holds 3 of the 4 elements, 12 B of 16 B."
    )
    assert (
        rank_norms_words(rank_norms(job.job, 0))
        == "The parts of the ranks are combined once all of them have measured the same step."
    )
    job.norms(0, 4, 3.0, 0.0)
    job.norms(1, 4, 4.0, 0.0)
    assert (
        rank_norms_words(rank_norms(job.job, 0))
        == "The norm is combined from 2 parts: 3.00 on rank 0, 4.00 on rank 1 (step 4)."
    )
