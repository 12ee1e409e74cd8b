"""What is told of models that come one after the other, or take turns: their figures outlive them, and are nobody else's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.adversaries import adversaries
from helpers.summaries import report_of, summarised
from helpers.training import loss_steps, square_step, square_steps
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe.model import model_registry
from gradtui.probe.runtime import sampling_schedule
from gradtui.protocol.events import MemoryMeasured, SavedBytesMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer.relisting import RECORDS_KEPT
from gradtui.run.state.model_records import state_counts
from gradtui.run.state.selectors import problem_count

DEMO = Path(__file__).parents[3] / "demos" / "no_grad_or_requires_grad.py"
STEPS = "steps = 12\n"
MIB = 1024**2
PRINTED = re.compile(r"(True|False) +(yes|no) +([\d,]+) +([\d.]+) MiB +([\d.]+) MiB")


@pytest.fixture(scope="module")
def four_options() -> tuple[list[dict[str, Any]], str]:
    """The models of the demo's summary, and what the demo itself printed."""
    import contextlib
    import io

    source = DEMO.read_text(encoding="utf-8")
    assert STEPS in source
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, watched() as seen, contextlib.redirect_stdout(printed):
        # No search for models is put off because this machine is busy, as in all tests of the probe.
        patch.setattr(model_registry, "_SEARCH_NS", 10**13)
        exec(compile(source.replace(STEPS, "steps = 2\n"), str(DEMO), "exec"), {"__name__": "__main__"})
    return summarised(seen.state)["models"], printed.getvalue()


# Of the demo: a prompt and a head train, eight blocks of a normalisation and two linear layers between them may.
WIDTH, LAYERS, CLASSES = 256, 8, 10
AROUND = 4 * WIDTH + WIDTH * CLASSES + CLASSES
HEAD = WIDTH * CLASSES + CLASSES
ENCODER = LAYERS * (2 * WIDTH + (2 * WIDTH * WIDTH + 2 * WIDTH) + (2 * WIDTH * WIDTH + WIDTH))


def test_the_four_options_are_told_apart(four_options: tuple[list[dict[str, Any]], str]) -> None:
    models, _ = four_options
    assert [model["run_under"] for model in models] == [
        {"grad": {"trainable": AROUND + ENCODER, "frozen": 0}},
        {"grad": {"trainable": AROUND, "frozen": ENCODER}},
        {"grad": {"trainable": AROUND, "frozen": 0}, "no_grad": {"trainable": ENCODER, "frozen": 0}},
        {"grad": {"trainable": AROUND, "frozen": 0}, "no_grad": {"trainable": 0, "frozen": ENCODER}},
    ]
    # The gradient of the prompt gets lost with the encoder under no_grad, whatever requires_grad says.
    gradients = [4 * (AROUND + ENCODER), 4 * AROUND, 4 * HEAD, 4 * HEAD]
    assert [model["gradient_bytes"] for model in models] == gradients
    stops = [model["backward"]["stops_at"] for model in models]
    never = [model["backward"]["never_enters"] for model in models]
    assert (stops, never) == ([[], [], ["head"], ["head"]], [[], [], ["encoder"], ["encoder"]])
    assert [model["current"] for model in models] == [False, False, False, True]


def test_four_options_hold_what_script_itself_counts(four_options: tuple[list[dict[str, Any]], str]) -> None:
    models, printed = four_options
    rows = PRINTED.findall(printed)
    assert len(rows) == len(models) == 4
    for model, (_, _, trainable, gradients, activations) in zip(models, rows):
        assert model["trainable"] == int(trainable.replace(",", ""))
        assert model["gradient_bytes"] / MIB == pytest.approx(float(gradients), abs=0.006)
        assert model["activation_bytes"] / MIB == pytest.approx(float(activations), abs=0.006)


@pytest.mark.parametrize("ends_with", ["discriminator", "generator"])
def test_model_keeps_its_figures_through_other_ones_step(ends_with: str) -> None:
    seen = adversaries(3, ends_with=ends_with)
    models = {model["type"]: model for model in summarised(seen.state)["models"]}
    generator = models["Sequential"]
    # Tanh keeps its result; the first layer's input is the batch.
    assert generator["activation_bytes"] == 32 * (64 + 8) * 4
    assert generator["measured_step"] == (4 if ends_with == "discriminator" else 6)
    assert models["Linear"]["activation_bytes"] == 32 * 16 * 4


def test_model_frozen_between_turns_keeps_nothing() -> None:
    generator, discriminator = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 1)
    with watched() as seen:
        optimizer_g = torch.optim.SGD(generator.parameters(), lr=0.1)
        optimizer_d = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        for number in range(4):
            generator.requires_grad_(number < 2)
            optimizer_g.zero_grad()
            optimizer_d.zero_grad()
            discriminator(generator(torch.ones(4, 8))).mean().backward()
            optimizer_d.step()
            if number < 2:
                optimizer_g.step()
    models = {model["type"]: model for model in summarised(seen.state)["models"]}
    assert models["Sequential"]["activation_bytes"] == 0


def test_bounded_number_of_gone_models_is_remembered() -> None:
    with watched() as seen:
        for width in range(1, RECORDS_KEPT + 4):
            model = nn.Linear(width, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.ones(2, width)).mean().backward()
            optimizer.step()
            del model, optimizer
    models = summarised(seen.state)["models"]
    assert [model["parameters"] for model in models] == [width + 1 for width in range(3, RECORDS_KEPT + 4)]
    assert [model["current"] for model in models] == [False] * RECORDS_KEPT + [True]
    assert all(model["gradient_bytes"] == 4 * model["parameters"] for model in models)


def test_a_model_that_stays_is_listed_once() -> None:
    encoder = nn.Linear(4, 4)
    with watched() as seen:
        for _ in range(3):
            head = nn.Linear(4, 1)
            optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
            head(encoder(torch.ones(2, 4))).mean().backward()
            optimizer.step()
            del head, optimizer
    models = summarised(seen.state)["models"]
    assert sorted(model["parameters"] for model in models) == [5, 5, 5, 20]


def test_a_model_that_is_only_evaluated_keeps_nothing() -> None:
    with watched() as seen, torch.inference_mode():
        nn.Linear(4, 3)(torch.ones(2, 4))
        model = nn.Linear(4, 3)
        model(torch.ones(2, 4))
    (row,) = summarised(seen.state)["models"][-1:]
    assert (row["activation_bytes"], row["gradient_bytes"]) == (0, 0)
    assert row["run_under"] == {"inference_mode": {"trainable": 15, "frozen": 0}}
    assert model is not None


def test_unlisted_run_says_nothing_of_gone_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched() as seen:
        for trained in (True, False):
            model = nn.Sequential(nn.Linear(4, 4).requires_grad_(trained), nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                model(torch.ones(2, 4)).mean().backward()
                optimizer.step()
            # From now on no search is made any more: they have taken too long already.
            monkeypatch.setattr(model_registry, "_SEARCH_NS", 0)
            monkeypatch.setattr(model_registry, "_SEARCH_SHARE", 0.0)
            del model, optimizer
    (row,) = summarised(seen.state)["models"]
    assert (row["trainable"], row["run_under"]) == (25, {"grad": {"trainable": 25, "frozen": 0}})
    assert row["measured_step"] == 3


def test_ledger_names_models_that_ran_in_its_step() -> None:
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    with watched() as seen:
        optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (one, two)]
        for _ in range(2):
            for model, optimizer in zip((one, two), optimizers):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    numbers = {model.number for model in seen.state.tree.models}
    last = [ledger.models for ledger in seen.ledgers(Phase.BACKWARD)[-2:]]
    assert len(numbers) == 2
    # The second step of a round goes on with the first one's trace.
    assert len(last[0]) == 1
    assert set(last[1]) == numbers


def test_no_model_had_run_while_the_script_loaded() -> None:
    student, teacher = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with watched() as seen:
        with torch.no_grad():
            teacher(torch.ones(1, 2))
        student(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    loads = [event for event in seen.all(MemoryMeasured) if event.phase is Phase.LOAD]
    assert len(loads) == 1
    assert loads[0].models == ()


def test_phases_bear_number_of_their_step() -> None:
    model = nn.Linear(2, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loss_steps(optimizer, lambda: model(torch.ones(1, 2)).sum(), 3)
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        assert [ledger.step for ledger in seen.ledgers(phase)] == [1, 2, 3]
    assert [ledger.step for ledger in seen.ledgers(Phase.LOAD)] == [0, 0]
    assert [event.step for event in seen.all(SavedBytesMeasured)] == [1, 2, 3]


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def train(model: nn.Module, steps: int = 6) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        square_step(model, optimizer, torch.randn(4, 8))


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        model.eval()(torch.randn(4, 8))


def update_statistics(model: nn.Module) -> None:
    torch.optim.swa_utils.update_bn([torch.randn(4, 8)], torch.optim.swa_utils.AveragedModel(model))


def evaluate_a_copy(model: nn.Module) -> None:
    best = layers()
    best.load_state_dict(model.state_dict())
    evaluate(best)


def test_former_stage_has_no_norm_in_next() -> None:
    """As in the demo of prompt learning: the pair is trained, frozen, and goes on inside another model."""
    pair = layers()
    with watched() as seen:
        train(pair)
        pair.requires_grad_(False)
        model = nn.Sequential(pair, nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for _ in range(3):
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
    norms = seen.norms()
    assert [path for path, norm in norms.items() if norm is not None] == ["1.weight", "1.bias"]
    rows = summarised(seen.state)["parameters"]
    assert [row["path"] for row in rows if row["gradient_norm"] is not None] == ["1.weight", "1.bias"]


def test_the_teacher_of_a_distillation_is_no_orphan() -> None:
    teacher, student = layers().eval(), layers()
    with watched() as seen:
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(4):
            x = torch.randn(4, 8)
            with torch.no_grad():
                wanted = teacher(x)
            nn.functional.mse_loss(student(x), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
    names = {model.name for model in seen.state.tree.models}
    assert len(names) == 2
    letters = seen.state.tree.states
    assert sorted(letters) == ["-"] * 6 + ["T"] * 6
    assert problem_count(seen.state.tree) == 0
    assert state_counts(seen.state, seen.state.tree) == {"evaluated only": 6, "trains": 6}


@pytest.mark.parametrize("at_the_end", [evaluate_a_copy, update_statistics])
def test_model_running_after_last_step_changes_nothing(
    at_the_end: Callable[[nn.Module], None],
) -> None:
    model = layers()
    with watched() as seen:
        train(model)
        seen.probe.report()
        before = summarised(seen.state)
        at_the_end(model)
        during = summarised(seen.state)
    after = summarised(seen.state)
    known = [(row["state"], row["gradient_norm"], row["saved_bytes"]) for row in before["parameters"]]
    assert [state for state, *_ in known] == ["T"] * 6
    assert all(norm is not None and saved is not None for _, norm, saved in known)
    for summary in (during, after):
        rows = summary["parameters"][:6]
        assert [(row["state"], row["gradient_norm"], row["saved_bytes"]) for row in rows] == known
        trained, late = summary["models"]
        assert (trained["evaluated_only"], late["evaluated_only"]) == (False, True)
        assert trained["run_under"] == before["models"][0]["run_under"]
        assert summary["gradient_norm"]["since_step"] == 0
    assert model is not None


def test_trained_models_are_reported_though_gone() -> None:
    def trained() -> dict[str, Tensor]:
        model = layers()
        train(model)
        return model.state_dict()

    with watched() as seen:
        best = layers()
        best.load_state_dict(trained())
        evaluate(best)
    summary = summarised(seen.state)
    assert [row["state"] for row in summary["parameters"]] == ["T"] * 6
    assert all(row["gradient_norm"] is not None for row in summary["parameters"])
    assert [(model["current"], model["evaluated_only"]) for model in summary["models"]] == [
        (False, False),
        (True, True),
    ]
    assert best is not None


def test_layers_trained_one_by_one_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward-forward training: an optimizer for each layer; nothing is sampled for its cost any more."""
    monkeypatch.setattr(sampling_schedule, "_WARMUP_S", 0.0)
    stack = [nn.Linear(8, 8) for _ in range(4)]
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in stack]
    with watched(budget=1e-9) as seen:
        x = torch.randn(4, 8)
        for layer, optimizer in zip(stack, optimizers):
            square_steps(layer, optimizer, x, 30)
            x = layer(x).detach()
    rows = summarised(seen.state)["parameters"]
    assert [row["state"] for row in rows] == ["T"] * 8
    assert len(seen.all(SavedBytesMeasured)) < 60


def test_absorbed_model_is_not_said_to_be_gone() -> None:
    """As in CoOp: the embedding runs in a constructor, before the model that is trained is made."""

    class Prompted(nn.Module):
        def __init__(self, pair: nn.Module) -> None:
            super().__init__()
            self.prompt = nn.Parameter(torch.zeros(8))
            self.encoder = pair.encoder.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.encoder(x + self.prompt)

    pair = nn.Module()
    pair.encoder, pair.scale = nn.Linear(8, 8), nn.Parameter(torch.ones(()))
    with watched() as seen:
        with torch.no_grad():
            pair.encoder(torch.randn(2, 8))
        model = Prompted(pair)
        del pair
        optimizer = torch.optim.SGD([model.prompt], lr=0.1)
        for _ in range(3):
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
    models = summarised(seen.state)["models"]
    assert [(row["part_of"], row["current"]) for row in models] == [("Prompted", False), (None, True)]
    lines = [line for line in report_of(seen.state) if line.startswith("model ")]
    assert len(lines) == 1
    assert lines[0].startswith("model Prompted")
    assert not any("gone" in entry.text for entry in seen.state.log)
