"""Trains with a framework, and continues from what it has saved: `resumed.py NAME [resume]`."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

resumes = "resume" in sys.argv


def data(columns=6):
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(28, columns, generator=draw), torch.randn(28, 1, generator=draw))


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.Linear(16, 1))


def transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    class Rows(torch.utils.data.Dataset):
        rows = torch.randint(50, (22, 12), generator=torch.Generator().manual_seed(2))

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return {"input_ids": self.rows[index], "labels": self.rows[index]}

    set_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=12, n_embd=16, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir="run", max_steps=20, per_device_train_batch_size=2, lr_scheduler_type="cosine", warmup_steps=2,
        save_steps=100 if resumes else 8, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=Rows()).train(
        resume_from_checkpoint="run/checkpoint-8" if resumes else None
    )


def lightning():
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Regressor(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, batch_idx):
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

    L.seed_everything(5)
    kept = [] if resumes else [ModelCheckpoint("run", filename="{epoch}", save_top_k=-1)]
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=4, logger=False, callbacks=kept, enable_progress_bar=False,
        enable_checkpointing=not resumes, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Regressor(), DataLoader(data(), batch_size=4), ckpt_path="run/epoch=1.ckpt" if resumes else None)


def accelerate():
    from accelerate import Accelerator

    torch.manual_seed(5)
    accelerator, model = Accelerator(cpu=True), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=40)
    loader = DataLoader(data(), batch_size=4, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    if resumes:
        accelerator.load_state("run")
    for epoch in range(2):
        for x, y in loader:
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if epoch == 0 and not resumes:
            accelerator.save_state("run")


globals()[sys.argv[1]]()
