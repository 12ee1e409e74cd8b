"""Fine-tunes a small GPT-2 with the Trainer of transformers: accumulation, clipping, evaluation, logging and checkpoints."""

import json
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

WORDS, TOKENS = 50, 12


class Rows(Dataset):
    def __init__(self, count):
        self.rows = torch.randint(WORDS, (count, TOKENS), generator=torch.Generator().manual_seed(count))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Count(TrainerCallback):
    """Counts the micro-steps as the Trainer tells them."""

    micro_steps = 0

    def on_substep_end(self, args, state, control, **more):
        self.micro_steps += 1

    def on_step_end(self, args, state, control, **more):
        self.micro_steps += 1


set_seed(5)
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=TOKENS, n_embd=16, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir="run",
    num_train_epochs=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_grad_norm=0.5,
    learning_rate=1e-3,
    lr_scheduler_type="cosine",
    warmup_steps=2,
    logging_steps=3,
    eval_strategy="steps",
    eval_steps=4,
    save_strategy="steps",
    save_steps=8,
    report_to=[],
    use_cpu=True,
)
count = Count()
# 22 rows are 11 batches: the last step of an epoch has one micro-step only.
trainer = Trainer(model, arguments, train_dataset=Rows(22), eval_dataset=Rows(6), callbacks=[count])
trainer.train()
trainer.save_model("final")
torch.save(torch.get_rng_state(), "generator.pt")
print("after", trainer.state.global_step, "steps", model.lm_head.weight.sum().item())
counts = {"steps": trainer.state.global_step, "micro_steps": count.micro_steps, "skipped": 0}
Path("counts.json").write_text(json.dumps(counts))
