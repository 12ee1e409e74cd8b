"""The state of every parameter as it comes out of real training: each letter on a model that is in it."""

from __future__ import annotations

import math
import time
import weakref
from types import SimpleNamespace
from typing import cast

import loops
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from watched import watched
from zoo import SPECIMENS

from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.parameter_states import Classified
from gradtui.probe.run_clock import RunClock
from gradtui.probe.told_states import ToldStates
from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import StateReason

X = torch.linspace(-1, 1, 24).view(6, 4)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 2) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


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


def test_tied_weights_are_one_parameter_with_two_names() -> None:
    specimen = SPECIMENS["tied_gpt"]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 1)
    (tied,) = [info for info in seen.state.tree.parameters if len(info.names) > 1]
    assert tied.names == ("tok_emb.weight", "lm_head.weight")
    assert len(seen.state.tree.parameters) == len(list(specimen.model.parameters()))


def test_a_shared_module_is_listed_once_under_both_names() -> None:
    specimen = SPECIMENS["shared_module"]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 1)
    assert {info.path: info.names for info in seen.state.tree.parameters} == {
        "first.weight": ("first.weight", "second.weight"),
        "first.bias": ("first.bias", "second.bias"),
        "head.weight": ("head.weight",),
        "head.bias": ("head.bias",),
    }


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


def test_a_frozen_output_projection_behind_a_trained_input_projection() -> None:
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


def test_frozen_parameters_that_are_added_where_nothing_upstream_needs_a_gradient() -> None:
    model = LooseParts("head")
    with watched() as seen:
        steps(model, torch.optim.SGD(model.head.parameters(), lr=0.1))
    letters = seen.letters()
    assert of(letters, "first") == of(letters, "shift") == of(letters, "prompts") == {"C"}
    # `head` is in the same model and may have been given it: that cannot be told.
    assert of(letters, "table") == of(letters, "spare") == {"-"}
    assert of(letters, "head") == {"T"}


def test_what_is_never_called_within_a_frozen_module_that_backward_never_enters_is_cut() -> None:
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2).requires_grad_(False), "head": nn.Linear(4, 2)})
    with watched() as seen:
        optimizer = torch.optim.SGD(model["head"].parameters(), lr=0.1)
        for _ in range(2):
            y = X[:, None]
            model["head"](model["attention"](y, y, y)[0]).square().mean().backward()
            optimizer.step()
    assert sorted(seen.letters().values()) == ["C"] * 4 + ["T"] * 2


def test_whether_an_unused_frozen_module_is_cut_is_unknown() -> None:
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


def test_what_a_reentrant_checkpoint_hides_is_unknown() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompt = nn.Parameter(X.clone())
            self.encoder, self.head = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.encoder, self.prompt * x, use_reentrant=True))

    model = Model()
    with watched() as seen:
        steps(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    letters = seen.letters()
    assert of(letters, "encoder") == {"-"}
    assert of(letters, "head") == {"T"}


def test_orphan() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        steps(model, torch.optim.SGD(model[1].parameters(), lr=0.1))
    assert seen.letters() == {"0.weight": "O", "0.bias": "O", "1.weight": "T", "1.bias": "T"}


def test_moved_while_frozen() -> None:
    """Momentum and a zero gradient: the weight drifts on although it is frozen."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            optimizer.zero_grad(set_to_none=False)
            model(X).square().mean().backward()
            optimizer.step()
            if step == 1:
                model[1].weight.requires_grad_(False)
    assert seen.letters() == {"0.weight": "T", "0.bias": "T", "1.weight": "M", "1.bias": "T"}


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


def test_not_finite() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (model(X).square().mean() * math.nan).backward()
        optimizer.step()
    assert set(seen.letters().values()) == {"N"}


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
def test_what_the_script_unfreezes_is_seen_where_no_step_is_due(
    in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradtui.probe.cadence._RAREST_S", 1e6)
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


def test_what_the_script_unfreezes_before_the_end_is_told_at_the_end() -> None:
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
    view = SimpleNamespace(tree=SimpleNamespace(parameter_refs=[weakref.ref(tensor)]))
    states = ToldStates(lambda _event: None, RunClock(), cast("ModelsInView", view))
    assert states.outdated() == []
    found = []
    for flag in "1010100":
        states.classified(Classified("T", flag, "-"), 1)
        found.append((flag, states.outdated()))
    # Told otherwise than it is, it is outdated, up to the fifth time that it was seen to switch.
    assert found == [("1", []), ("0", [0]), ("1", []), ("0", [0]), ("1", []), ("0", []), ("0", [])]


def test_what_is_switched_within_each_step_is_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.cadence._RAREST_S", 1e6)
    monkeypatch.setattr("gradtui.probe.step_counter.FLUSH_NS", 0)
    monkeypatch.setattr("gradtui.probe.step_marks._TELL_NS", 0)
    monkeypatch.setattr("gradtui.probe.step_examiner._BETWEEN_SWITCHES", 0)
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
            examined.append(seen.probe.examiner.examination is not None)
    assert any(examined[20:60])  # behind the first ones, which always are
    assert not any(examined[100:])


def test_a_letter_is_told_when_it_changes_and_not_again() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 5)
    assert [event.states for event in seen.all(ParametersClassified)] == ["TT"]


def test_an_empty_parameter_is_neither_trained_nor_a_problem() -> None:
    assert zoo("zero_size_parameter")["prompt"] == "-"


def test_what_a_frozen_encoder_keeps_is_kept_for_the_prompt_in_front_of_it() -> None:
    specimen = SPECIMENS["frozen_encoder_with_prompt"]()
    with watched() as seen:
        loops.plain(specimen.model, specimen.batch, specimen.loss, 2)
    saved, tree = seen.state.tree.saved, seen.state.tree
    assert saved is not None
    trainable = [place for place, flag in enumerate(tree.trainable) if flag == "1"]
    kept = [place for place, size in enumerate(saved.by_module) if size]
    assert kept
    named = {saved.upstream[place] for place in kept} - {-1}
    assert named
    assert named <= set(trainable)
