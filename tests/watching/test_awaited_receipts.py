"""The receipts of `gradtui.watch`: what they wait for, and what they say if nothing more is to come."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from helpers.training import square_step
from helpers.watched import watched
from torch import nn

import gradtui
from gradtui.probe.session import Viewer
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import NOT_MEASURED
from gradtui.watching.receipt import Receipt
from gradtui.watching.watched_training import Watch, WatchInRun


class Loop:
    """A training that runs as many steps as it is asked to."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            square_step(self.model, self.optimizer, torch.ones(4, 3))

    def train_until(self, is_enough: threading.Event) -> None:
        deadline = time.monotonic() + 30
        while not is_enough.is_set() and time.monotonic() < deadline:
            self.train(1)


async def _awaited(receipt: Receipt) -> gradtui.ChangeResult:
    return await receipt


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def watch(loop: Loop) -> Iterator[Watch]:
    with gradtui.watch(loop.model, loop.optimizer, progress=False) as opened:
        yield opened


def test_receipt_on_training_thread_does_not_wait(loop: Loop, watch: Watch) -> None:
    loop.train(4)
    receipt = watch.freeze("0.bias")
    assert not receipt.done()
    with pytest.raises(TimeoutError, match=r"^freeze 0\.bias: waits for the next step"):
        receipt.result()
    loop.train(1)
    early = receipt.result(timeout=60)
    assert (early.step, early.measured, early.effect) == (4, "not measured yet", None)
    loop.train(20)
    known = receipt.result()
    assert receipt.done()
    assert known.effect.after is not None
    assert (known.step, known.effect.before.step) == (4, 4)
    assert known.effect.after.step > 4
    assert str(known) == f"{known.text}: {known.measured}"
    assert repr(receipt) == "<Receipt: freeze 0.bias: applied>"


def test_on_another_thread_it_waits_for_the_measurement(loop: Loop, watch: Watch) -> None:
    loop.train(4)
    receipt, found, enough = watch.freeze("0"), [], threading.Event()

    def wait() -> None:
        found.append(receipt.result(timeout=30))
        enough.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    loop.train_until(enough)
    waiting.join()
    (result,) = found
    assert result.effect is not None
    assert not loop.model[0].weight.requires_grad


def test_receipt_does_not_wait_for_ended_thread(loop: Loop) -> None:
    training = threading.Thread(target=loop.train, args=(4,))
    with gradtui.watch(loop.model, loop.optimizer, progress=False) as watch:
        training.start()
        training.join()
        receipt = watch.freeze("0")
        with pytest.raises(TimeoutError, match="waits for the next step"):
            receipt.result()

        async def main() -> gradtui.ChangeResult:
            return await asyncio.wait_for(_awaited(receipt), 10)

        with pytest.raises(TimeoutError, match="waits for the next step"):
            asyncio.run(main())


def test_it_can_be_awaited_while_another_thread_trains(loop: Loop, watch: Watch) -> None:
    enough = threading.Event()

    async def main() -> gradtui.ChangeResult:
        training = asyncio.create_task(asyncio.to_thread(loop.train_until, enough))
        while watch.state.step < 4:
            await asyncio.sleep(0.01)
        result = await watch.freeze("1")
        enough.set()
        await training
        return result

    assert asyncio.run(main()).effect is not None


def test_awaited_receipt_has_measurable_after_training(
    loop: Loop, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradtui.watching.receipt._POLL_S", 0.001)
    loop.train(4)
    receipt = watch.freeze("1.bias")
    loop.train(2)

    async def main() -> gradtui.ChangeResult:
        return await receipt

    result = asyncio.run(main())
    assert (result.step, result.effect is None) == (4, False)
    last = watch.freeze("0.bias")

    async def never() -> gradtui.ChangeResult:
        return await last

    with pytest.raises(TimeoutError):
        asyncio.run(never())


def test_rows_can_be_frozen_and_unfrozen(loop: Loop, watch: Watch) -> None:
    loop.train(2)
    before = loop.model[0].weight.detach().clone()
    receipt = watch.freeze("0.weight", rows="0:2")
    loop.train(2)
    assert "rows 0:2 of 0.weight" in receipt.result(timeout=60).text
    assert torch.equal(loop.model[0].weight[:2], before[:2])
    watch.unfreeze("0.weight", rows="1")
    loop.train(2)
    assert torch.equal(loop.model[0].weight[0], before[0])
    assert not torch.equal(loop.model[0].weight[1], before[1])


def test_a_refusal_is_an_error_with_its_reason(loop: Loop, watch: Watch) -> None:
    loop.train(2)
    receipts = [watch.unfreeze("0.bias"), watch.freeze("nothing"), watch.checkpoint("")]
    loop.train(2)
    reasons = []
    for receipt in receipts:
        with pytest.raises(gradtui.NotAppliedError) as caught:
            receipt.result()
        assert receipt.done()
        reasons.append(str(caught.value))
    refused = [entry.text for entry in watch.state.log if entry.kind == "rejected"]
    assert reasons == refused
    assert reasons[0].endswith("0.bias is already trainable")


def test_after_the_run_it_says_that_it_ended(loop: Loop) -> None:
    with gradtui.watch(loop.model, loop.optimizer, progress=False) as watch:
        # There is nothing before the first step that the steps after it could be compared with.
        first = watch.freeze("0.bias")
        loop.train(1)
        late = watch.freeze("1")
    result = first.result(timeout=60)
    assert (result.step, result.measured, result.effect) == (0, NOT_MEASURED, None)
    for command in (late, watch.unfreeze("1")):
        with pytest.raises(gradtui.NotAppliedError, match=r"the run ended before the next step$"):
            command.result()


@pytest.mark.parametrize("before", [0, 1])
def test_incomparable_change_says_so_immediately(loop: Loop, watch: Watch, before: int) -> None:
    loop.train(before)
    receipt = watch.freeze("0.bias")
    loop.train(1)
    assert receipt.done()
    assert receipt.result(timeout=0).measured.startswith("not measured: ")
    # On a busy machine fewer steps are sampled.
    loop.train(20)
    later = watch.freeze("0.weight")
    loop.train(20)
    assert later.result(timeout=0).effect is not None


def test_checkpointing_has_a_receipt_too(loop: Loop, watch: Watch) -> None:
    loop.train(4)
    receipt = watch.checkpoint("0")
    loop.train(20)
    assert receipt.result().step == 4
    assert receipt.result().text.startswith("checkpoints 0")


def test_unanswering_viewer_under_command_knows_nothing(loop: Loop) -> None:
    with watched() as seen:
        for viewer in (None, Viewer(lambda at: None, lambda: 0)):
            unsure = WatchInRun(seen.probe, viewer)
            with pytest.raises(TimeoutError):
                unsure.freeze("0").result()
        ended = WatchInRun(seen.probe, Viewer(lambda at: at(RunState(ended=object())), lambda: 0))  # type: ignore[arg-type]
        with pytest.raises(gradtui.NotAppliedError, match="the run ended"):
            ended.freeze("0").result()
        loop.train(1)
