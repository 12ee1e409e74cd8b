"""What a freeze takes: with many tensors work that grows with their number, and with nothing else; and few files of code."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from helpers.calls import counting
from helpers.watched import watched
from torch import nn

from gradtui.probe.commands.returns import held_by_script
from gradtui.probe.kept_states import HeldState
from gradtui.protocol.commands import SetTrainable


def calls(layers: int, *, own: bool) -> list[int]:
    """Calls of Python functions made by a freeze and an unfreeze of `2 * layers` tensors, `own`ed by the optimizer or not."""
    body, head = nn.Sequential(*[nn.Linear(1, 1) for _ in range(layers)]), nn.Linear(1, 1)
    model = nn.Sequential(body, head)
    if not own:
        body.requires_grad_(False)
    optimizer = torch.optim.SGD((model if own else head).parameters(), lr=0.1)
    counted: list[int] = []
    with watched(budget=0.01) as seen:
        cross = seen.probe.dispatcher.cross

        def counted_cross(*arguments: object) -> None:
            with counting() as calls:
                cross(*arguments)
            counted.append(calls.all)

        def step() -> None:
            optimizer.zero_grad()
            head(body[0](torch.ones(1, 1))).sum().backward()
            optimizer.step()

        for _ in range(2):
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
        for trainable in (False, True) if own else (True, False):
            seen.submit(lambda id_, trainable=trainable: SetTrainable(id_, "0", trainable))
            seen.probe.dispatcher.cross = counted_cross
            model(torch.ones(1, 1)).sum().backward()
            seen.probe.dispatcher.cross = cross
            optimizer.step()
        assert [f"{2 * layers} tensors" in answer for answer in seen.answers()] == [True, True], seen.answers()
    return counted


@pytest.mark.parametrize("own", [True, False], ids=["owned", "orphans"])
def test_toggle_of_many_tensors_takes_linear_calls(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The search for what this process holds takes as many calls as it holds objects, whatever is frozen.
    monkeypatch.setattr(held_by_script, "held_state", lambda *_: HeldState())
    calls(2, own=own)  # what is done once in a process
    sizes = 50, 100, 200
    for of_sizes in zip(*(calls(layers, own=own) for layers in sizes)):
        each = [
            (more - less) / (2 * (large - small)) for (small, less), (large, more) in pairwise(zip(sizes, of_sizes))
        ]
        # What one more tensor takes does not depend on how many there are, within a call or two.
        assert each[1] == pytest.approx(each[0], abs=2)
        # Half of them are for the copy of the state before the change.
        assert max(each) < (60 if own else 88)


def test_toggle_is_followed_in_few_files() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    files: list[int] = []
    with watched(budget=0.01) as seen:
        trainability = seen.probe.dispatcher.trainability
        toggle = trainability.set_trainable

        def counted(command: SetTrainable) -> object:
            with counting() as calls:
                done = toggle(command)
            files.append(len(calls.files))
            return done

        trainability.set_trainable = counted
        for trainable in (True, False, True):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.submit(lambda id_, trainable=trainable: SetTrainable(id_, "0", trainable))
        model(torch.ones(1, 4))
        assert [answer.partition(" ")[0] for answer in seen.answers()] == ["0", "froze", "unfroze"]
    # Plan, check, apply and record: these are the files that a reader of one freeze opens.
    assert max(files[1:]) < 25
