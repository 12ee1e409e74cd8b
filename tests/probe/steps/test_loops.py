"""Whole training loops as people write them: the counts and the order of phases that the probe tells of each."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import pytest
import torch
from helpers import loops
from helpers.training import small_net, square_step
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from zoo import SPECIMENS

from gradtui.protocol.events import GradientsMeasured
from gradtui.protocol.vocabulary import Phase

X = torch.linspace(-1, 1, 24).view(6, 4)
STEP = ["forward", "backward", "other", "optimizer", "data"]


def visits(seen: Watched) -> dict[str, int]:
    """How often each phase was entered."""
    return {phase.value: record.count for phase, record in seen.state.phases.items() if record.count}


def train(
    loop: Callable[[nn.Module, loops.Batch, loops.Loss, int], None], steps: int = 3, name: str = "mlp"
) -> Watched:
    specimen = SPECIMENS[name]()
    with watched() as seen:
        loop(specimen.model, specimen.batch, specimen.loss, steps)
    return seen


def test_plain() -> None:
    seen = train(loops.plain)
    assert seen.counts() == (3, 3, 0, [3])
    # zero_grad comes first in this loop, so the first one interrupts loading.
    assert seen.phases == ["load", "zero_grad", "load", *STEP, *["zero_grad", "data", *STEP] * 2]
    assert visits(seen) == {
        "load": 1, "zero_grad": 3, "forward": 3, "backward": 3, "other": 3, "optimizer": 3, "data": 3,
    }  # fmt: skip


def test_zero_grad_between_forward_and_backward() -> None:
    seen = train(loops.adamw)
    cycle = ["forward", "zero_grad", "forward", "backward", "other", "optimizer", "data"]
    assert seen.phases == ["load", *cycle * 3]
    assert seen.counts() == (3, 3, 0, [3])


def test_accumulation() -> None:
    seen = train(loops.accumulation, steps=2)
    assert seen.counts() == (2, 8, 0, [2])
    cycle = ["forward", "backward", "other"] * loops.MICRO_BATCHES + ["optimizer", "data", "zero_grad", "data"]
    assert seen.phases == ["load", "zero_grad", "load", *cycle * 2]


def test_accumulation_with_clipping_and_a_schedule() -> None:
    assert train(loops.accumulation_clipped).counts() == (3, 12, 0, [3])


def test_gan() -> None:
    seen = train(loops.gan)
    # Per round two backwards and a step for the discriminator, one of each for the generator.
    assert seen.counts() == (6, 9, 0, [3, 3])
    assert [model.type_name for model in seen.state.tree.models] == ["Sequential", "Sequential"]
    discriminator = ["forward", "zero_grad", "forward", "backward", "other", "backward", "other", "optimizer", "data"]
    generator = ["zero_grad", "data", *STEP]
    # The first forward, outside the measured rounds, only asks how many features there are.
    assert seen.phases == ["load", *(discriminator + generator) * 3]


def test_lbfgs() -> None:
    seen = train(loops.lbfgs, steps=2)
    steps, micro_steps, skipped, by_optimizer = seen.counts()
    assert (steps, skipped, by_optimizer) == (2, 0, [2])
    closure = "zero_grad optimizer forward backward optimizer "
    step = re.compile(f"optimizer ({closure})+data ")
    assert re.fullmatch(f"load ({step.pattern}){{2}}", " ".join(seen.phases) + " ")
    assert micro_steps == seen.phases.count("backward") > 2
    assert visits(seen)["optimizer"] == 2


def test_evaluation_between_steps() -> None:
    seen = train(loops.with_evaluation)
    assert seen.counts() == (3, 3, 0, [3])
    assert visits(seen)["eval"] == 3
    assert seen.phases[:3] == ["load", "zero_grad", "load"]
    assert seen.phases[3:] == [*STEP, *["eval", "data", "zero_grad", "data", *STEP] * 2, "eval", "data"]


def test_grad_scaler_that_skips_a_step() -> None:
    seen = train(loops.grad_scaler)
    assert seen.counts() == (2, 3, 1, [2])
    # The skipped step has no optimizer phase.
    assert seen.phases.count("optimizer") == 2


@pytest.mark.parametrize("unscale", [True, False])
def test_grad_scaler_with_self_skipping_fused_optimizer(unscale: bool) -> None:
    model, scaler = small_net(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        for step in range(3):
            optimizer.zero_grad()
            loss = model(X).square().mean() * (float("inf") if step == 1 else 1.0)
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert seen.counts() == (2, 3, 1, [2])


def test_a_disabled_grad_scaler_changes_nothing() -> None:
    model, scaler = small_net(), torch.amp.GradScaler("cpu", enabled=False)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            scaler.scale(model(X).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert seen.counts() == (2, 2, 0, [2])


class Checkpointed(nn.Module):
    """A model of two parts, the first of which is recomputed in backward."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.use_reentrant = small_net(), nn.Linear(2, 2), use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.second(checkpoint(self.first, x, use_reentrant=self.use_reentrant))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_recomputed_forward_is_part_of_backward(use_reentrant: bool) -> None:
    model = Checkpointed(use_reentrant)
    x = X.clone().requires_grad_(True)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.counts() == (2, 2, 0, [2])
    assert seen.phases == ["load", *[*STEP, "zero_grad", "data"] * 2]
    assert set(seen.letters().values()) == {"T"}


def test_one_optimizer_per_parameter_stepped_within_backward() -> None:
    specimen = SPECIMENS["mlp"]()
    count = len(list(specimen.model.parameters()))
    with watched() as seen:
        loops.step_in_backward(specimen.model, specimen.batch, specimen.loss, 2)
    assert seen.counts() == (2 * count, 2, 0, [2] * count)
    within = ["backward", *["optimizer", "backward", "zero_grad", "backward"] * count]
    assert seen.phases == ["load", "forward", *within, "other", "forward", *within, "other"]


class Inherited(torch.optim.SGD):
    """Calls its parent's step, so that torch's step hooks run twice, one within the other."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        return super().step(closure)


@pytest.mark.parametrize("with_closure", [True, False])
def test_a_step_that_calls_its_parents_counts_once(with_closure: bool) -> None:
    model = small_net()
    with watched() as seen:
        optimizer = Inherited(model.parameters(), lr=0.1)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            if with_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
    assert seen.counts() == (3, 3, 0, [3])
    assert visits(seen)["optimizer"] == 3


class Lookahead(torch.optim.Optimizer):
    """An optimizer around another, which steps it from within its own step."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:
        if closure is not None:
            closure()
        self.inner.step()


def test_an_optimizer_within_an_optimizer() -> None:
    model = small_net()
    with watched() as seen:
        optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))

        def closure() -> float:
            optimizer.zero_grad()
            model(X).square().mean().backward()
            return 0.0

        for _ in range(2):
            optimizer.step(closure)
    # Each of the two is an optimizer whose step ran.
    assert seen.counts() == (4, 2, 0, [2, 2])
    assert [optimizer.groups_of for optimizer in seen.state.optimizers] == [-1, 0]
    assert seen.phases[-1] == "data"


def test_gradient_penalty() -> None:
    seen = train(loops.gradient_penalty, name="mlp")
    assert seen.counts() == (3, 3, 0, [3])
    cycle = ["forward", "backward", "forward", "zero_grad", "forward", "backward", "other", "optimizer", "data"]
    assert seen.phases == ["load", *cycle * 3]


def test_applied_functional_gradient_is_no_backward() -> None:
    """A script that writes what `torch.func.grad` returns into `.grad` steps, and accumulates nothing."""
    from torch.func import functional_call, grad

    model = small_net()

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(model, parameters, (X,)).square().mean()

    norms: list[float] = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            gradients = grad(loss)({name: p.detach() for name, p in model.named_parameters()})
            for name, parameter in model.named_parameters():
                parameter.grad = gradients[name].clone()
            norms.append(sum(g.double().square().sum().item() for g in gradients.values()) ** 0.5)
            optimizer.step()
            optimizer.zero_grad()
    assert seen.counts() == (3, 0, 0, [3])
    assert visits(seen)["optimizer"] == 3
    assert [event.total for event in seen.all(GradientsMeasured)] == pytest.approx(norms, rel=1e-5)


def test_criterion_that_is_module_is_part_of_forward() -> None:
    model, criterion = small_net(), nn.MSELoss()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            criterion(model(X), torch.zeros(6, 2)).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.counts() == (3, 3, 0, [3])
    assert seen.phases == ["load", *[*STEP, "zero_grad", "data"] * 3]
    assert [model.type_name for model in seen.state.tree.models] == ["Sequential"]


class Inverted(nn.Module):
    """Trained by a method of its own: its children are called from outside of any module."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 8), nn.Linear(8, 4)

    def training_step(self, x: Tensor) -> Tensor:
        loss: Tensor = (self.decoder(self.encoder(x)) - x).square().mean()
        return loss

    def forward(self, x: Tensor) -> Tensor:
        return self.training_step(x)


@pytest.mark.parametrize("method", ["training_step", "forward"])
@pytest.mark.parametrize("micro_steps", [1, 3])
def test_model_trained_by_method_without_call(micro_steps: int, method: str) -> None:
    model = Inverted()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for _ in range(micro_steps):
                (getattr(model, method)(X) / micro_steps).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.counts() == (2, 2 * micro_steps, 0, [2])
    cycle = [*["forward", "backward", "other"] * micro_steps, "optimizer", "data", "zero_grad", "data"]
    assert seen.phases == ["load", *cycle * 2]
    assert [model.type_name for model in seen.state.tree.models] == ["Inverted"]
    assert set(seen.letters().values()) == {"T"}


def test_a_scripted_model_steps_as_any_other() -> None:
    """Its children cannot be heard, its call can."""
    model = small_net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a DeprecationWarning, from torch 2.14 on a FutureWarning
        scripted = torch.jit.script(model)
    with watched() as seen:
        optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1)
        for _ in range(3):
            for part in X.split(3):
                scripted(part).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.counts() == (3, 6, 0, [3])
    cycle = [*["forward", "backward", "other"] * 2, "optimizer", "data", "zero_grad", "data"]
    assert seen.phases == ["load", *cycle * 3]


def test_gradients_cleared_through_the_model() -> None:
    """As Hugging Face's Trainer does."""
    model = small_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(X).square().mean().backward()
            optimizer.step()
            model.zero_grad()
    assert seen.phases == ["load", *[*STEP, "zero_grad", "data"] * 2]
    assert visits(seen)["zero_grad"] == 2


def test_a_loader() -> None:
    model = small_net()
    loader = DataLoader(TensorDataset(X), batch_size=2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (x,) in loader:
            model(x).square().mean().backward()
            optimizer.step()
    assert seen.counts() == (3, 3, 0, [3])
    assert seen.phases == ["load", *STEP * 3]


def test_batch_fetched_after_forward_without_backward_is_data() -> None:
    model = small_net()
    with watched() as seen:
        for (x,) in DataLoader(TensorDataset(X), batch_size=3):
            model(x)
    assert seen.phases == ["load", *["forward", "data"] * 2]


def raising_script(model: nn.Module, optimizer: torch.optim.Optimizer, where: str) -> None:
    """One step that raises at `where`, caught as a script would, then nothing else."""

    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, *grads: Tensor) -> Tensor:
            raise RuntimeError("in backward")

    def run() -> None:
        if where == "forward":
            model(X[:, :3])
        elif where == "backward":
            Boom.apply(model(X)).sum().backward()
        else:
            model(X).sum().backward()
            optimizer.param_groups[0]["lr"] = Unusable()
            optimizer.step()

    with pytest.raises(RuntimeError):
        run()


class Unusable:
    """A learning rate whose use raises."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("in step")

    def __neg__(self) -> object:
        raise RuntimeError("in step")


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
def test_training_goes_on_after_an_exception(where: str) -> None:
    model = small_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            raising_script(model, optimizer, where)
            optimizer.param_groups[0]["lr"] = 0.1
            before = len(seen.phases)
            square_step(model, optimizer, X)
            assert seen.phases[before:][-5:] == STEP
    assert (seen.state.step, seen.state.optimizer_steps) == (2, [2])


def test_inner_raising_step_leaves_outer_open() -> None:
    model, other = small_net(), small_net()
    with watched() as seen:
        outer, inner = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)

        def closure() -> float:
            model(X).sum().backward()
            other(X).sum().backward()
            inner.param_groups[0]["lr"] = Unusable()
            with pytest.raises(RuntimeError):
                inner.step()
            inner.param_groups[0]["lr"] = 0.1
            inner.step()
            return 0.0

        for _ in range(2):
            outer.step(closure)
    assert (seen.state.step, seen.state.optimizer_steps) == (4, [2, 2])
    assert seen.phases[-2:] == ["optimizer", "data"]


@pytest.mark.parametrize("criterion", [None, nn.MSELoss()])
def test_training_in_eval_mode_is_training(criterion: nn.Module | None) -> None:
    model = small_net().eval()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            output = model(X)
            loss = output.square().mean() if criterion is None else criterion(output, torch.zeros_like(output))
            loss.backward()
            optimizer.step()
    assert seen.counts() == (3, 3, 0, [3])
    # The first forward could not be told from evaluation; its time and visit are given back.
    assert seen.phases[-10:] == STEP * 2
    assert visits(seen).get("eval", 0) == 0
    assert visits(seen)["forward"] >= 3
    assert seen.letters() == dict.fromkeys(seen.letters(), "T")


class TrainingStep(nn.Module):
    """A module whose forward is a whole training step, as adversarial-training wrappers have it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss.detach()


@pytest.mark.parametrize("training", [True, False])
def test_a_backward_within_a_module_call(training: bool) -> None:
    wrapper = TrainingStep(small_net()).train(training)
    with watched() as seen:
        optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)
        for _ in range(3):
            wrapper(X)
            optimizer.step()
    assert seen.counts() == (3, 3, 0, [3])
    assert all(record.seconds >= 0 for record in seen.state.phases.values())
    seen.check_that_phases_fill_the_time()


def test_bare_tensors_without_any_module() -> None:
    weight = torch.zeros(4, 2, requires_grad=True)
    with watched() as seen:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            (X @ weight - 1).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.counts() == (3, 3, 0, [3])
    assert seen.state.tree.models == ()
    assert seen.state.gradient_norm.values
    assert seen.state.optimizers[0].unknown_parameters == 1


def test_encoder_in_eval_mode_before_trained_head() -> None:
    """Feature extraction: the frozen encoder's calls stay evaluation, the head's are the forward."""
    encoder, head = small_net().eval().requires_grad_(False), nn.Linear(2, 1)
    with watched() as seen:
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(3):
            head(encoder(X)).square().mean().backward()
            optimizer.step()
    assert seen.counts() == (3, 3, 0, [3])
    assert visits(seen)["eval"] == 3
    assert visits(seen)["forward"] == 3


@pytest.mark.parametrize(
    ("loop", "name"),
    loops.with_specimens("mlp", "conv_batchnorm", "tied_gpt", "checkpointed", "frozen_encoder_with_prompt"),
)
def test_phases_add_up_to_time_of_loop(loop: str, name: str) -> None:
    seen = train(loops.LOOPS[loop], steps=2, name=name)
    seen.check_that_phases_fill_the_time()
    assert all(record.count >= 0 for record in seen.state.phases.values())
    assert seen.state.phases[Phase.BACKWARD].count >= 2
