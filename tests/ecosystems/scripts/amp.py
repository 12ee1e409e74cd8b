"""torch.amp: autocast to bfloat16 first, then float16 with a loss scaler that leaves out two steps."""

import json
import time
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

torch.manual_seed(5)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3)
counts = {"steps": 0, "micro_steps": 0, "skipped": 0}
for step in tqdm(range(12), desc="amp"):
    images, labels = torch.randn(6, 1, 8, 8), torch.randint(3, (6,))
    if step in (7, 9):
        images[0] = 3e38
    half = torch.bfloat16 if step < 4 else torch.float16
    with torch.autocast("cpu", dtype=half):
        loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    scale = scaler.get_scale()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    counts["micro_steps"] += 1
    counts["skipped" if scaler.get_scale() < scale else "steps"] += 1
    print(step, loss.item(), scaler.get_scale())
    # Stands for a larger model: the run is to be there when a key arrives.
    time.sleep(0.05)
torch.save([model.state_dict(), scaler.state_dict(), torch.get_rng_state()], "weights.pt")
Path("counts.json").write_text(json.dumps(counts))
