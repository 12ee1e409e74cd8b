"""The state of every parameter as it comes out of real training: each letter on a model that is in it."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from helpers import loops
from helpers.training import square_steps
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import SPECIMENS

from gradtui.probe.autograd.gradient_flow import FlowThrough, GraphsOfStep
from gradtui.probe.autograd.graph_summary import HiddenRegion
from gradtui.probe.model.tree_builder import build
from gradtui.probe.runtime import RunClock
from gradtui.probe.sampling.parameter_states import Classified, ParameterStateReporter
from gradtui.probe.steps import ProbeContext, StepCounter
from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import Reach, StateReason
from gradtui.run.state.backward.frontier import Frontier, frontier
from gradtui.run.text.frontier import frontier_sentence
from gradtui.run.text.problem_states import state_reason

X = torch.linspace(-1, 1, 24).view(6, 4)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 2) -> None:
    square_steps(model, optimizer, X, count)


def zoo(name: str) -> dict[str, str]:
    specimen = SPECIMENS[name]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 3)
    return seen.letters()


def of(letters: dict[str, str], prefix: str) -> set[str]:
    return {letter for path, letter in letters.items() if path.startswith(prefix)}


@pytest.mark.parametrize(
    "name",
    [
        "mlp", "conv_batchnorm", "tied_gpt", "weight_normalised", "sparse_embedding",
        "complex_parameter", "lazy", "bf16", "checkpointed", "lstm",
    ],
)  # fmt: skip
def test_what_trains_is_trained(name: str) -> None:
    assert set(zoo(name).values()) == {"T"}


def test_zero() -> None:
    """LoRA's first step: the gradient of A is exactly zero while B still is."""
    specimen = SPECIMENS["lora"]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 1)
    first = seen.letters()
    assert first["0.lora_a"] == first["2.lora_a"] == "Z"
    assert first["2.lora_b"] == "T"
    assert zoo("lora")["2.lora_a"] == "T"


def test_frozen_weights_beside_adapters() -> None:
    letters = zoo("lora")
    # Nothing in front of the first base layer needs a gradient; the second one's passes on to the first adapter.
    assert of(letters, "0.base") == {"C"}
    assert of(letters, "2.base") == {"F"}


def test_unreached() -> None:
    letters = zoo("unused_branch")
    assert of(letters, "unused") == {"U"}
    assert of(letters, "used") == {"T"}
    letters = zoo("under_no_grad")
    assert of(letters, "backbone") == {"U"}
    assert of(letters, "head") == {"T"}


def test_flow_through_and_cut() -> None:
    letters = zoo("frozen_encoder_with_prompt")
    assert letters["prompt"] == "T"
    assert of(letters, "text_encoder") == {"F"}
    assert of(letters, "image_encoder") == {"C"}
    assert of(zoo("frozen_prefix"), "backbone") == {"C"}


class WithAttention(nn.Module):
    """A prompt in front of `nn.MultiheadAttention`, whose output projection is a module that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.ones(3, 4))
        self.attention = nn.MultiheadAttention(4, 2)
        self.attention.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([self.prompt, x])[:, None]
        return self.attention(y, y, y)[0]


def test_a_frozen_module_that_is_never_called_itself() -> None:
    model = WithAttention()
    with watched() as seen:
        steps(model, torch.optim.SGD([model.prompt], lr=0.1))
    letters = seen.letters()
    assert letters.pop("prompt") == "T"
    assert set(letters.values()) == {"F"}
    assert "attention.out_proj.weight" in letters


def test_frozen_output_projection_behind_trained_input_projection() -> None:
    """Within one module the gradient passes the frozen part on its way to the trained part."""
    model = WithAttention()
    model.prompt.requires_grad_(False)
    model.attention.in_proj_weight.requires_grad_(True)
    with watched() as seen:
        steps(model, torch.optim.SGD([model.attention.in_proj_weight], lr=0.1))
    letters = seen.letters()
    assert letters["attention.out_proj.weight"] == letters["attention.out_proj.bias"] == "F"


def test_only_the_biases_trained() -> None:
    """BitFit: of the first layers nothing in front needs a gradient, so their weights are cut."""
    specimen = SPECIMENS["mlp"]()
    for name, parameter in specimen.model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in specimen.model.parameters() if p.requires_grad], lr=0.1)
        for step in range(2):
            specimen.loss(specimen.model(*specimen.batch(step))).backward()
            optimizer.step()
    assert seen.letters() == {"fc1.weight": "C", "fc1.bias": "T", "fc2.weight": "F", "fc2.bias": "T"}


class LooseParts(nn.Module):
    """Frozen parameters that are only added, in holders that are never called."""

    def __init__(self, trained: str) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.prompts = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.table = nn.Embedding(3, 4)
        self.spare = nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, 2)
        self.requires_grad_(False)
        self.get_submodule(trained).requires_grad_(True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x) + self.prompts[0] * 2 + self.table.weight[0] + self.shift)


def test_frozen_parameters_that_are_only_added() -> None:
    """The gradient passes the additions on its way to `first`; of what is never called the graph holds no trace."""
    model = LooseParts("first")
    with watched() as seen:
        steps(model, torch.optim.SGD(model.first.parameters(), lr=0.1))
    letters = seen.letters()
    assert of(letters, "first") == {"T"}
    assert letters["shift"] == "F"
    assert of(letters, "prompts") == {"F"}  # a ParameterList is never called: its parent's state
    assert letters["table.weight"] == "-"
    assert of(letters, "spare") == {"-"}
    assert of(letters, "head") == {"F"}
    reasons = dict(zip(letters, seen.state.tree.reasons))
    assert reasons["table.weight"] == reasons["spare.weight"] == StateReason.NOT_CALLED.value
    assert reasons["shift"] == reasons["prompts.0"] == StateReason.NONE.value


def test_frozen_parameters_added_without_upstream_gradient() -> None:
    model = LooseParts("head")
    with watched() as seen:
        steps(model, torch.optim.SGD(model.head.parameters(), lr=0.1))
    letters = seen.letters()
    assert of(letters, "first") == of(letters, "shift") == of(letters, "prompts") == {"C"}
    # `head` is in the same model and may have been given it: that cannot be told.
    assert of(letters, "table") == of(letters, "spare") == {"-"}
    assert of(letters, "head") == {"T"}


def test_uncalled_module_within_unentered_is_cut() -> None:
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2).requires_grad_(False), "head": nn.Linear(4, 2)})
    with watched() as seen:
        optimizer = torch.optim.SGD(model["head"].parameters(), lr=0.1)
        for _ in range(2):
            y = X[:, None]
            model["head"](model["attention"](y, y, y)[0]).square().mean().backward()
            optimizer.step()
    assert sorted(seen.letters().values()) == ["C"] * 4 + ["T"] * 2


def test_whether_unused_frozen_module_is_cut_is_unknown() -> None:
    specimen = SPECIMENS["unused_branch"]()
    specimen.model.unused.requires_grad_(False)
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 2)
    assert of(seen.letters(), "unused") == {"-"}


def test_a_frozen_teacher_is_cut() -> None:
    student, teacher = nn.Linear(4, 2), nn.Linear(4, 2)
    teacher.requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                wanted = teacher(X)
            (student(X) - wanted).square().mean().backward()
            optimizer.step()
    assert sorted(seen.letters().values()) == ["C", "C", "T", "T"]


class Reentrant(nn.Module):
    """A frozen encoder within a reentrant checkpoint, behind `first` or behind nothing that requires a gradient."""

    def __init__(self, *, frozen_first: bool = False, dummy: bool = False, depth: int = 1) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4).requires_grad_(not frozen_first)
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).requires_grad_(False)
        self.adapter, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.dummy, self.depth = dummy, depth

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(self.region(x, torch.ones(1, requires_grad=self.dummy), self.depth))

    def region(self, x: Tensor, dummy: Tensor, depth: int) -> Tensor:
        if depth == 0:
            return self.adapter(self.encoder(x))
        return checkpoint(self.region, x, dummy, depth - 1, use_reentrant=True)


def reentrant(model: Reentrant) -> Watched:
    with watched() as seen:
        steps(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    return seen


@pytest.mark.parametrize("depth", [1, 2])
def test_gradient_passes_what_is_frozen_within_reentrant_checkpoint(depth: int) -> None:
    seen = reentrant(Reentrant(depth=depth))
    letters = seen.letters()
    assert of(letters, "encoder") == {"F"}
    assert of(letters, "first") == of(letters, "adapter") == of(letters, "head") == {"T"}
    tree = seen.state.tree
    flow = {info.path: letter for info, letter in zip(tree.modules, tree.gradient_flow.reach)}
    assert flow["encoder"] == flow["encoder.0"] == flow["adapter"] == Reach.THROUGH.value
    assert frontier(tree) == Frontier()


def test_dummy_input_makes_reentrant_checkpoint_train() -> None:
    """The usual way around "none of the inputs requires a gradient": the dummy is not used, so nothing passes the encoder."""
    seen = reentrant(Reentrant(frozen_first=True, dummy=True))
    letters = seen.letters()
    assert of(letters, "first") == of(letters, "encoder") == {"C"}
    assert of(letters, "adapter") == of(letters, "head") == {"T"}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_reentrant_checkpoint_without_gradient_input_is_named() -> None:
    seen = reentrant(Reentrant(frozen_first=True))
    letters = seen.letters()
    assert of(letters, "adapter") == {"U"}
    assert of(letters, "encoder") == {"C"}
    assert of(letters, "head") == {"T"}
    adapter = next(i for i, info in enumerate(seen.state.tree.parameters) if info.path == "adapter.weight")
    for words in (state_reason(seen.state.tree, adapter), frontier_sentence(seen.state.tree)):
        assert words is not None
        assert "in a reentrant checkpoint without" in words
        assert "no_grad" not in words


def test_unused_result_of_reentrant_checkpoint_is_detached() -> None:
    class Detached(Reentrant):
        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.head(x + self.region(x, torch.ones(1), 1).detach())

    seen = reentrant(Detached())
    adapter = next(i for i, info in enumerate(seen.state.tree.parameters) if info.path == "adapter.weight")
    assert seen.letters()["adapter.weight"] == "U"
    assert "detached" in str(state_reason(seen.state.tree, adapter))


def test_region_on_another_thread_follows_inputs() -> None:
    """On a device backward runs on threads of the engine's, where nobody traces the modules that run again."""
    model = Reentrant()
    tree = build([("model", model)])
    indices = {info.path: index for index, info in enumerate(tree.modules)}
    graphs = GraphsOfStep(active={0}, passing={0})
    inside = frozenset(indices[path] for path in ("encoder", "encoder.0", "adapter"))
    for leads_on, expected in ((True, True), (False, None)):
        graphs.regions = {7: HiddenRegion(0, inside, leads_on)}
        passing = FlowThrough(tree, graphs, {0, *inside}, ())
        assert passing.through(indices["encoder.0"])[0] is expected
        assert passing.through(indices["head"])[0] is None


def by_function(model: nn.Module, optimizers: list[torch.optim.Optimizer], count: int, factor: float = 1.0) -> None:
    """Steps with gradients from `torch.func.grad`: there is no backward, and other tensors stand in for the parameters."""

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x,)).square().mean() * factor

    for _ in range(count):
        gradients = torch.func.grad(loss)({name: p.detach() for name, p in model.named_parameters()}, X)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize(("factor", "letter"), [(1.0, "T"), (0.0, "Z"), (math.inf, "N")])
def test_gradients_that_the_script_assigns_itself(factor: float, letter: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        by_function(model, [torch.optim.SGD(model.parameters(), lr=0.1)], 3, factor)
    assert set(seen.letters().values()) == {letter}


def test_assigned_gradients_of_two_optimizers() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(2, 2))
    with watched() as seen:
        by_function(model, [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[1])], 3)
    assert seen.letters() == {f"{part}.{name}": "TTO"[part] for part in range(3) for name in ("weight", "bias")}


def test_steps_without_a_forward_keep_to_the_budget() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        by_function(model, [optimizer], 40)
        examined = 0
        for _ in range(20):
            by_function(model, [optimizer], 1)
            examined += seen.probe.step_sampler.sampled_step is not None
    assert examined < 3
    assert set(seen.letters().values()) == {"T"}


def test_an_averaged_copy_is_moved_while_frozen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for _ in range(3):
            steps(model, optimizer, 1)
            with torch.no_grad():
                model[0].weight.mul_(0.9)
    assert seen.letters()["0.weight"] == "M"
    assert seen.letters()["0.bias"] == "C"


@pytest.mark.parametrize("fused", [True, False])
def test_skipped(fused: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with watched() as seen:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        for step in range(2):
            optimizer.zero_grad()
            scaler.scale(model(X).square().mean() * (math.inf if step == 1 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert set(seen.letters().values()) == {"S"}
    assert [set(event.states) for event in seen.all(ParametersClassified)] == [{"T"}, {"S"}]


def test_the_other_optimizers_parameters_keep_their_letters() -> None:
    """A GAN: the discriminator's step says nothing about the generator."""
    specimen = SPECIMENS["mlp"]()
    with watched() as seen:
        loops.gan(specimen.model, specimen.batch, specimen.loss, 2)
    assert set(seen.letters().values()) == {"T"}
    letters = [event.states for event in seen.all(ParametersClassified)]
    # Nothing is said of either before its own optimizer has stepped.
    assert {frozenset(states) for states in letters} == {frozenset("-T"), frozenset("T")}


def test_flags_follow_the_script() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps(model, optimizer)
        assert seen.state.tree.trainable == "1111"
        model[0].requires_grad_(False)
        steps(model, optimizer)
        assert seen.state.tree.trainable == "0011"
        assert seen.letters() == {"0.weight": "C", "0.bias": "C", "1.weight": "T", "1.bias": "T"}
        model[0].requires_grad_(True)
        steps(model, optimizer)
    assert set(seen.letters().values()) == {"T"}


@pytest.mark.parametrize("in_parts", [False, True], ids=["marked", "told at once"])
def test_unfreeze_by_script_is_seen_between_samples(in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.runtime.sampling_schedule._MAX_INTERVAL_S", 1e6)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)

    def step() -> None:
        optimizer.zero_grad()
        (model[1](model[0](X)) if in_parts else model(X)).square().mean().backward()
        optimizer.step()

    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(40):
            step()
        names = [letter for _, letter in sorted(seen.letters().items())]
        assert names == ["C", "C", "T", "T"]
        model[0].weight.requires_grad_(True)
        deadline = time.monotonic() + 20
        while (seen.state.tree.trainable == "0011" or "-" in seen.letters().values()) and time.monotonic() < deadline:
            step()
        assert seen.state.tree.trainable == "1011"
        assert [letter for _, letter in sorted(seen.letters().items())] == ["C", "T", "T", "T"]


def test_unfreeze_by_script_is_told_at_end() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps(model, optimizer, 40)
        model[0].weight.requires_grad_(True)
        steps(model, optimizer, 3)
    assert seen.state.tree.trainable == "1011"
    assert seen.letters() == {"0.weight": "-", "0.bias": "C", "1.weight": "T", "1.bias": "T"}


def test_what_takes_turns_is_not_outdated() -> None:
    tensor = nn.Parameter(torch.ones(1))
    view = SimpleNamespace(tree=SimpleNamespace(parameter_refs=[weakref.ref(tensor)], listing=1))
    states = ParameterStateReporter(
        cast("ProbeContext", SimpleNamespace(counter=StepCounter(), emit=lambda _: None, clock=RunClock(), models=view))
    )
    assert states.outdated() == []
    found = []
    for flag in "1010100":
        states.classified(Classified("T", flag, "-"), 1)
        found.append((flag, states.outdated()))
    # Told otherwise than it is, it is outdated, up to the fifth time that it was seen to switch.
    assert found == [("1", []), ("0", [0]), ("1", []), ("0", [0]), ("1", []), ("0", []), ("0", [])]


def test_switching_within_steps_is_not_watched_forever(
    monkeypatch: pytest.MonkeyPatch, set_sample_cost: Callable[[float], None]
) -> None:
    set_sample_cost(0.001)
    monkeypatch.setattr("gradtui.probe.runtime.sampling_schedule._MAX_INTERVAL_S", 1e6)
    monkeypatch.setattr("gradtui.probe.steps.step_counter.FLUSH_NS", 0)
    monkeypatch.setattr("gradtui.probe.steps.hook_buffer._FLUSH_NS", 0)
    monkeypatch.setattr("gradtui.probe.steps.hook_buffer._FLUSH_WITHIN_NS", 0)
    monkeypatch.setattr("gradtui.probe.sampling.step_sampler._BETWEEN_SWITCHES", 0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched(budget=1e-9) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        examined = []
        for _ in range(200):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            # Marks are told at the end of a backward, states after a step.
            model[0].requires_grad_(False)
            loss.backward()
            model[0].requires_grad_(True)
            optimizer.step()
            examined.append(seen.probe.step_sampler.sampled_step is not None)
    assert any(examined[20:60])  # behind the first ones, which always are
    assert not any(examined[100:])


def test_letter_is_told_only_when_it_changes() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 5)
    assert [event.states for event in seen.all(ParametersClassified)] == ["TT"]


def test_empty_parameter_is_neither_trained_nor_problem() -> None:
    assert zoo("zero_size_parameter")["prompt"] == "-"


def test_frozen_encoder_keeps_for_prompt_in_front() -> None:
    specimen = SPECIMENS["frozen_encoder_with_prompt"]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 2)
    saved, tree = seen.state.tree.saved, seen.state.tree
    assert saved is not None
    trainable = [index for index, flag in enumerate(tree.trainable) if flag == "1"]
    kept = [index for index, size in enumerate(saved.by_module) if size]
    assert kept
    named = {saved.upstream[index] for index in kept} - {-1}
    assert named
    assert named <= set(trainable)
