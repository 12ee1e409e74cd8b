"""The loops of frameworks, by the frameworks themselves: steps, micro-steps and the order of phases, as arithmetic has them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.training import small_net
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = [
    pytest.mark.skipif(
        None in (find_spec("lightning"), find_spec("accelerate"), find_spec("transformers")),
        reason="no such packages for this version of Python",
    ),
    # Lightning uses what torch has deprecated, and on a machine of many cores it asks for workers.
    pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers"),
]

STEPS, MICRO_STEPS = 3, 4
X = torch.linspace(-1, 1, 48).view(12, 4)
STEP = ["forward", "backward", "other", "optimizer", "data"]


def loss_of(model: nn.Module, number: int) -> Tensor:
    return model(X + 0.1 * number).square().mean()


def visits(seen: Watched, *phases: str) -> dict[str, int]:
    """How often these phases were entered."""
    entered = {phase.value: record.count for phase, record in seen.state.phases.items()}
    return {phase: entered[phase] for phase in phases}


@pytest.mark.parametrize("accumulate", [1, MICRO_STEPS])
def test_lightning_with_automatic_optimization(accumulate: int) -> None:
    """The last micro-step of each runs within the optimizer's step, as a closure; those before it outside."""
    from helpers.lightning_loop import Automatic, fit

    with watched() as seen:
        fit(Automatic(small_net(), loss_of), steps=STEPS, accumulate=accumulate)
    backwards = STEPS * accumulate
    assert seen.counts() == (STEPS, backwards, 0, [STEPS])
    assert visits(seen, "backward", "optimizer", "eval") == {"backward": backwards, "optimizer": STEPS, "eval": 0}
    within = [index for index, phase in enumerate(seen.phases) if phase == "optimizer"]
    assert all(seen.phases[index - 1] != "backward" for index in within[::2]), "it begins before its backward"
    assert [model.type_name for model in seen.state.tree.models] == ["Automatic"]
    assert set(seen.letters().values()) == {"T"}


def test_lightning_with_manual_optimization() -> None:
    import lightning
    from helpers.lightning_loop import Automatic, fit

    class Manual(Automatic):
        """A step every second batch, without a closure."""

        def __init__(self) -> None:
            super().__init__(small_net(), loss_of)
            self.automatic_optimization = False

        def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
            optimizer: Any = self.optimizers()
            self.manual_backward(self.loss(self.net, batch_idx))
            if batch_idx % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()

    assert issubclass(Manual, lightning.LightningModule)
    with watched() as seen:
        fit(Manual(), steps=STEPS, accumulate=2)
    assert seen.counts() == (STEPS, 2 * STEPS, 0, [STEPS])
    # The trainer clears the gradients once before all of them.
    assert visits(seen, "forward", "backward", "optimizer", "zero_grad") == {
        "forward": 2 * STEPS, "backward": 2 * STEPS, "optimizer": STEPS, "zero_grad": STEPS + 1,
    }  # fmt: skip
    assert set(seen.letters().values()) == {"T"}


@pytest.mark.parametrize("accumulate", [1, MICRO_STEPS])
def test_accelerate(accumulate: int) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model = small_net()
    with watched() as seen:
        loader = DataLoader(TensorDataset(X.repeat(accumulate, 1)), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
        for (x,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).square().mean())
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    batches = 3 * accumulate
    assert seen.counts() == (3, batches, 0, [3])
    # AcceleratedOptimizer passes on only the steps and the clearing that are to happen.
    assert visits(seen, "forward", "backward", "optimizer", "zero_grad") == {
        "forward": batches, "backward": batches, "optimizer": 3, "zero_grad": 3,
    }  # fmt: skip
    assert set(seen.letters().values()) == {"T"}


@pytest.mark.parametrize("accumulate", [1, MICRO_STEPS])
def test_the_trainer_of_transformers(accumulate: int, tmp_path: Path) -> None:
    """It fetches all micro-batches of a step first, and clears the gradients through the model."""
    import transformers

    words, tokens = 50, 12
    rows = [{"input_ids": torch.arange(row, row + tokens) % words} for row in range(2 * STEPS * accumulate)]
    for row in rows:
        row["labels"] = row["input_ids"].clone()
    with watched() as seen:
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=words, n_positions=tokens, n_embd=16, n_layer=1, n_head=2)
        )
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, max_steps=STEPS, per_device_train_batch_size=2,
            gradient_accumulation_steps=accumulate, report_to=[], save_strategy="no", disable_tqdm=True,
            logging_strategy="no", eval_strategy="steps", eval_steps=2, max_grad_norm=0.5,
        )  # fmt: skip
        transformers.Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:2]).train()
    assert seen.counts() == (STEPS, STEPS * accumulate, 0, [STEPS])
    seen_visits = visits(seen, "backward", "optimizer", "eval")
    assert (seen_visits["backward"], seen_visits["optimizer"]) == (STEPS * accumulate, STEPS)
    assert seen_visits["eval"] >= 1
    assert len(seen.state.before_clipping) == STEPS
    assert set(seen.letters().values()) == {"T"}
