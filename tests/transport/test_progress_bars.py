"""The time left as tqdm writes it. The lines are those of tqdm's documented format."""

from __future__ import annotations

from time import process_time

import pytest

from gradtui.transport.progress_bars import ProgressBar, progress_bars


@pytest.mark.parametrize(
    ("line", "bar"),
    [
        (" 40%|████      | 4/10 [00:01<00:02,  2.50it/s]", ProgressBar("", 10, 2, 3)),
        ("epoch 22/45:  40%|██████████   | 4/10 [00:01<00:02]", ProgressBar("epoch 22/45", 10, 2, 3)),
        (
            "train:   1%|          | 12.3k/1.20M [01:10<1:02:03, 318it/s, loss=0.2]",
            ProgressBar("train", 1.2e6, 3723, 3793),
        ),
        ("  0%|          | 1/1000 [01:10<2 days, 3:00:05, 1.2s/it]", ProgressBar("", 1000, 183_605, 183_675)),
        ("  7%|##4       | 7/100 [00:07<01:33,  1.00s/it]", ProgressBar("", 100, 93, 100)),
    ],
)
def test_a_bar_tells_the_time_left(line: str, bar: ProgressBar) -> None:
    assert progress_bars(["epoch 1 done", line]) == [bar]


@pytest.mark.parametrize(
    "line",
    [
        "  0%|          | 0/10 [00:00<?, ?it/s]",
        "100%|██████████| 10/10 [00:03<00:00,  3.00it/s]",
        "12it [00:03,  3.90it/s]",
        "loss 0.2 | 4/10 [00:01<00:02]",
        "epoch 3: 40%",
        "",
    ],
)
def test_other_lines_tell_none(line: str) -> None:
    assert progress_bars([line]) == []


def test_bars_above_other_output_are_over() -> None:
    assert progress_bars([" 40%|████      | 4/10 [00:01<00:02,  2.50it/s]", "done"]) == []
    assert progress_bars([]) == []


def test_the_outermost_of_nested_bars_comes_first() -> None:
    lines = [
        "started",
        "all:  20%|██        | 2/10 [00:20<01:20, 10.00s/it]",
        "epoch:  50%|█████     | 5/10 [00:05<00:05,  1.00s/it]",
        "",
    ]
    assert [(bar.name, bar.seconds_left) for bar in progress_bars(lines)] == [("all", 80), ("epoch", 5)]
    finished = "epoch: 100%|██████████| 10/10 [00:10<00:00,  1.00s/it]"
    assert [bar.name for bar in progress_bars([*lines[:2], finished])] == ["all"]


@pytest.mark.parametrize(
    "line",
    [
        " " * 100_000, "1" * 100_000, "1%|" * 30_000, "1%||1/" + "1" * 100_000, "1%|| 1/2[" * 10_000, "1%||1/2[1:00" * 10_000,
        "1%||1.1.1/2[00:01<00:02", "1%||./.[00:01<00:02", "1%||1/2[00:01<" + "9" * 999,
        "1%||1/2[00:01<" + "9" * 400 + " days, 1:00",
    ],
)  # fmt: skip
def test_no_line_takes_long(line: str) -> None:
    began = process_time()
    assert progress_bars([line] * 8) == []
    assert process_time() - began < 1
