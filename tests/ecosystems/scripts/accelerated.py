"""A loop of accelerate's: accumulation, clipping, a scheduler, and the mixed precision that the command line names."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

set_seed(5)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, mixed_precision=sys.argv[1])
model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=12)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
# 16 batches are 5 steps of 3 micro-steps and one of 1.
loader = DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
accelerator.register_for_checkpointing(schedule)
counts = {"steps": 0, "micro_steps": 0, "skipped": 0}
bar = tqdm(total=12, desc="accelerate", disable=not accelerator.is_local_main_process)
for epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            counts["micro_steps"] += 1
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            counts["steps"] += 1
            bar.update()
            bar.set_postfix(loss=f"{loss.item():.4f}")
    accelerator.print("epoch", epoch, loss.item(), loss.dtype, schedule.get_last_lr())
bar.close()
accelerator.save_state("state")
torch.save(accelerator.unwrap_model(model).state_dict(), "weights.pt")
Path("counts.json").write_text(json.dumps(counts))
