"""Loss and norms of every step on a simulated device: nothing waits, and the script's memory is that of a plain run.

The simulated device computes no norms. The losses are numbers that the script copies to the device.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.explained import short
from helpers.simulated import Simulated, run_simulated

from gradtui.protocol.events import GradientsMeasured, NonFiniteFound, RunEnded, StepsMeasured
from gradtui.records.recording import Recording
from gradtui.remote.live.answers import _status
from gradtui.run.reducer import apply
from gradtui.run.state.freshness import stale_norm_step
from gradtui.run.state.run_state import RunState
from gradtui.run.text import progress_line

pytestmark = pytest.mark.fake_cuda

STEPS = 30

SCRIPT = """
import json, sys, time
import torch
from torch import nn

how, pace = sys.argv[1], float(sys.argv[2])
sides = [torch.cuda.Stream() for _ in range(2)]
x = torch.ones(64, 256, device="cuda")


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 256).to("cuda:0"), nn.Linear(256, 256).to("cuda:1")

    def forward(self, x):
        return self.second(self.first(x).relu().to("cuda:1", non_blocking=True))


class Loss(torch.autograd.Function):
    '''Gives the loss a number of the host, as kernels that compute would.'''

    @staticmethod
    def forward(context, outputs, number):
        context.save_for_backward(outputs)
        return outputs.float().square().mean().copy_(number, non_blocking=True)

    @staticmethod
    def backward(context, gradient):
        return torch.ones_like(context.saved_tensors[0]) * gradient, None


if how == "two":
    model = Split()
elif how == "sparse":
    model = nn.Sequential(nn.Embedding(500, 64, sparse=True), nn.Linear(64, 64)).cuda()
    x = torch.zeros(32, dtype=torch.int64, device="cuda")
else:
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
if how == "sparse":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
else:
    optimizer = torch.optim.Adam(model.parameters(), capturable=how == "captured", fused=how == "amp")
numbers = torch.arange(STEPS * 8 + 1.0).pin_memory()
if how in ("nan", "loaded"):
    numbers[20] = torch.nan
if how == "amp":
    scaler = torch.amp.GradScaler("cuda")
    scaler._lazy_init_scale_growth_tracker(torch.device("cuda"))
    scaler._scale.copy_(numbers[8])


def loss_of(x, number):
    if how in ("captured", "replayed"):
        return model(x).square().mean()
    return Loss.apply(model(x), numbers[number])


def step(number):
    optimizer.zero_grad(set_to_none=how != "captured")
    if how == "accumulated":
        for part in x.split(16):
            loss_of(part, number).backward()
    elif how == "amp":
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(x, number)
        scaled = scaler.scale(loss)
        scaled.detach().copy_(numbers[8 * number], non_blocking=True)
        scaled.backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return
    elif how in ("side", "forward on a side"):
        side = sides[0]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = loss_of(x, number)
            if how == "side":
                loss.backward()
        if how == "side":
            torch.cuda.current_stream().wait_stream(side)
        else:
            loss.backward()  # autograd makes the current stream wait at its end
    else:
        loss_of(x, number).backward()
    optimizer.step()


def run(number):
    step(number)


if how == "graphed":
    model = torch.cuda.make_graphed_callables(model, (x.clone().requires_grad_(),))
if how in ("captured", "replayed"):
    sides[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(sides[0]):
        for _ in range(3):
            step(0)
    torch.cuda.current_stream().wait_stream(sides[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(0) if how == "captured" else loss_of(x, 0).backward()

    def run(number):
        graph.replay()
        if how == "replayed":
            optimizer.step()


# Batches of one sample, whose index is the number of the step.
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(STEPS) + 1), batch_size=1)
torch.cuda.set_sync_debug_mode("error")
for number in range(1, STEPS + 1) if how != "loaded" else (int(each) for each, in loader):
    time.sleep(pace)
    run(number)
    figures = []
    for index in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(index)
        figures += [torch.cuda.max_memory_allocated(index), torch.cuda.max_memory_reserved(index)]
        figures += [torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)]
        figures += [stats.get(name) for name in ("segment.all.current", "num_alloc_retries")]
        if how != "forward on a side":
            # There blocks of one stream that another one has used are active until the device is so far.
            figures.append(stats.get("active_bytes.all.peak"))
    print(json.dumps([number, *figures]), flush=True)
    torch.cuda.reset_peak_memory_stats()
torch.cuda.set_sync_debug_mode("default")
""".replace("STEPS", str(STEPS))


class Seen:
    """What a recording has of each step."""

    def __init__(self, path: Path) -> None:
        self.losses: dict[int, float] = {}
        self.norms: dict[int, float] = {}
        self.nonfinite: list[NonFiniteFound] = []
        for event in Recording(path).events():
            if isinstance(event, NonFiniteFound):
                self.nonfinite.append(event)
            if isinstance(event, StepsMeasured):
                for losses in event.losses:
                    self.losses.update(zip(losses.steps, losses.losses))
            figures = event.figures if isinstance(event, StepsMeasured) else ()
            for each in (event,) if isinstance(event, GradientsMeasured) else figures:
                if each.loss is not None:
                    self.losses[each.step] = each.loss
                if each.total is not None:
                    self.norms[each.step] = each.total


def is_at_the_end(stack: str) -> bool:
    """Return whether gradtui waits because the run is over."""
    return " in _catch_up" in stack


def run_both_ways(
    tmp_path: Path, how: str, pace: float = 0, *, kernel_us: int = 5, allocator: str = ""
) -> tuple[Simulated, Seen]:
    """Run the script in both ways, and check that its memory and its waits are the same."""
    recording = tmp_path / "run.gradtui"
    devices = 2 if how == "two" else 1
    plain, ours = (
        run_simulated(
            SCRIPT, how, str(pace), watched=watched, devices=devices, kernel_us=kernel_us,
            options=("--record", str(recording)),
            environ={"PYTORCH_CUDA_ALLOC_CONF": allocator, "PYTORCH_ALLOC_CONF": allocator} if allocator else None,
        )
        for watched in (False, True)
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert ours.returncode == 0, ours.stderr[-2000:]
    assert len(plain.told) == STEPS
    assert [pair for pair in zip(ours.told, plain.told) if pair[0] != pair[1]] == []
    assert ours.summary["problems"] == {}
    assert ours.calls.violations == 0
    assert ours.calls.of("captured node") == plain.calls.of("captured node")
    assert [stack for stack in ours.stacks if stack.startswith("OVERTAKING")] == []
    # A capture frees what the host's allocator holds, after the script has waited for the device.
    waits = [
        [each for each in run.stacks if each.startswith("WAIT") and not each.startswith("WAIT cudaFreeHost")]
        for run in (plain, ours)
    ]
    during = [stack for stack in waits[1] if not is_at_the_end(stack)]
    assert len(during) == len(waits[0]), during[-1]
    return ours, Seen(recording)


@pytest.mark.parametrize("how", ["accumulated", "amp", "two", "side", "forward on a side", "sparse", "graphed"])
def test_every_step_has_loss_without_changing_script(tmp_path: Path, how: str) -> None:
    _, seen = run_both_ways(tmp_path, how, kernel_us=200 if "side" in how else 5)
    assert seen.losses == {step: step for step in range(1, STEPS + 1)}
    assert set(seen.norms) >= set(range(1, 17))


@pytest.mark.parametrize("allocator", ["backend:cudaMallocAsync", "expandable_segments:True"])
@pytest.mark.parametrize("how", ["accumulated", "amp"])
def test_other_allocators_change_nothing_either(tmp_path: Path, how: str, allocator: str) -> None:
    _, seen = run_both_ways(tmp_path, how, allocator=allocator)
    assert seen.losses == {step: step for step in range(1, STEPS + 1)}
    assert set(seen.norms) >= set(range(1, 17))


def test_steps_that_take_longer_have_their_norms_too(tmp_path: Path) -> None:
    """Norms are read less often only where they take more than 3 % of a step."""
    _, seen = run_both_ways(tmp_path, "plain", pace=0.06)
    every = set(range(1, STEPS + 1))
    assert (set(seen.losses), set(seen.norms)) == (every, every)


def test_what_device_returns_late_is_of_right_steps(tmp_path: Path) -> None:
    ours, seen = run_both_ways(tmp_path, "plain", kernel_us=600)
    assert seen.losses == {step: step for step in range(1, STEPS + 1)}
    assert set(seen.norms) == set(seen.losses)
    assert ours.summary["cost"]["dropped_readings"] == 0
    assert ours.summary["cost"]["device_us_per_step"] > 600, "several of its own kernels"


def test_the_first_nan_is_of_its_step(tmp_path: Path) -> None:
    ours, _ = run_both_ways(tmp_path, "nan", kernel_us=600)
    assert ours.summary["bad_step"]["step"] == 20


def test_late_batch_of_first_nan_is_named(tmp_path: Path) -> None:
    _, seen = run_both_ways(tmp_path, "loaded", kernel_us=600)
    (found,) = seen.nonfinite
    assert (found.step, found.earliest) == (20, 20)
    assert [(batch.number, batch.samples) for batch in found.batches] == [(20, (19,))]


def test_replays_of_step_have_neither_loss_nor_norms(tmp_path: Path) -> None:
    ours, seen = run_both_ways(tmp_path, "captured")
    assert ours.summary["steps"] == 3 + STEPS
    assert (set(seen.losses), set(seen.norms)) == ({1, 2, 3}, {1, 2, 3})


def test_norms_from_before_replay_show_their_step(tmp_path: Path) -> None:
    ours, _ = run_both_ways(tmp_path, "captured")
    norms, last = ours.summary["gradient_norm"], ours.summary["steps"]
    assert (norms["last_step"], norms["measured_steps"], last) == (3, 3, 3 + STEPS)
    assert {each["gradient_norm_step"] for each in ours.summary["parameters"]} == {3}
    assert "(step 3)" in next(line for line in ours.stderr.splitlines() if line.startswith("gradtui: norm"))
    # As the run was before its end, when the newest step counts.
    state = RunState()
    for event in Recording(tmp_path / "run.gradtui").events():
        if not isinstance(event, RunEnded):
            apply(state, event)
    state.steps_per_second = 1.0
    assert "gradient norm" in progress_line(state)
    assert progress_line(state).count("(step 3)") == 2
    assert _status(state)["gradient_norm_step"] == 3
    assert "Its gradient norm is of step 3." in short(state, ~0)
    assert stale_norm_step(state, range(1)) == 3


def test_steps_on_replayed_gradients_have_norms_only(tmp_path: Path) -> None:
    ours, seen = run_both_ways(tmp_path, "replayed", pace=0.06)
    assert ours.summary["steps"] == 3 + STEPS
    assert set(seen.losses) == {1, 2, 3}
    assert set(seen.norms) == set(range(1, 4 + STEPS))
