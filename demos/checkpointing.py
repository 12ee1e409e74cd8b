"""Activation checkpointing: less memory for more time, and the same weights to the bit.

A deep network is trained with nothing checkpointed, with segments of √n blocks of which only the input is kept, and with every
block by itself. Of one step the script follows each allocation and prints how memory went up and down; of the others, the time.

gradtui says the same beforehand, from three steps of plain training:

    gradtui forecast --checkpoint "segments.?" --checkpoint "segments.?.?" demos/checkpointing.py 100

forecasts that the peak becomes 67.5 and 79.0 MiB lower, and the table below shows 118.4 → 50.9 and 118.4 → 39.4 MiB. With
`--fit 110MiB` it finds the fewest segments with which a step fits into that.

The same choice can be made while it trains: `gradtui demos/checkpointing.py 2000` trains plainly for 2000 steps. `F` lists the
plans with their forecasts. Or go down to `segments.0`, press `c`, and three steps later the panel Changes says what it brought,
beside the forecast; `t` shows the curve of a step, `u` takes it back. The line at the end is the same whatever was pressed.
"""

import hashlib
import sys
import time
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

blocks, width, batch = 36, 128, 512
per_segment = 6  # √36
steps = 8
MiB = 1024**2
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Deep(nn.Module):
    """Blocks in segments of √n; `plan` says what is checkpointed: "nothing", "segments" or "blocks"."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan
        counts = [per_segment] * (blocks // per_segment)
        self.segments = nn.ModuleList(nn.Sequential(*(Block() for _ in range(count))) for count in counts)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for segment in self.segments:
            if self.plan == "segments":
                x = checkpoint(segment, x, use_reentrant=False)
            elif self.plan == "blocks":
                for block in segment:
                    x = checkpoint(block, x, use_reentrant=False)
            else:
                x = segment(x)
        return self.head(x)


class Followed(TorchDispatchMode):
    """Bytes of the storages that operations have made and that are still there, after every operation."""

    def __init__(self):
        super().__init__()
        self.now, self.curve, self.living = 0, [], {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.nbytes() and storage.data_ptr() not in self.living:
                    self.living[storage.data_ptr()] = size = storage.nbytes()
                    self.now += size
                    weakref.finalize(storage, self.freed, storage.data_ptr())
        self.curve.append(self.now)
        return result

    def freed(self, key):
        self.now -= self.living.pop(key, 0)


def drawn(curve, highest, columns=64):
    """The highest of each of so many stretches of the curve, as bars of eight heights."""
    parts = [curve[len(curve) * i // columns : len(curve) * (i + 1) // columns + 1] for i in range(columns)]
    return "".join("▁▂▃▄▅▆▇█"[min(7, 8 * max(part) // highest)] for part in parts)


def one_step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def train(plan, steps, follow):
    """Train from the same beginning; returns the weights, seconds a step, and the curve of the last step."""
    torch.manual_seed(0)
    model = Deep(plan).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(batch, width, device=device), torch.randint(10, (batch,), device=device)
    times, curve = [], []
    for _ in range(steps):
        began = time.perf_counter()
        one_step(model, optimizer, x, y)
        times.append(time.perf_counter() - began)
    if follow:
        with Followed() as followed:
            one_step(model, optimizer, x, y)
        curve = followed.curve
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    return weights, sorted(times)[len(times) // 2], curve


if len(sys.argv) > 1:
    weights, seconds, _ = train("nothing", int(sys.argv[1]), follow=False)
    print(f"{1000 * seconds:.1f} ms a step; weights {hashlib.sha256(weights).hexdigest()[:16]}")
    sys.exit()

runs = {plan: train(plan, steps, follow=True) for plan in ("nothing", "segments", "blocks")}
highest = max(max(curve) for _, _, curve in runs.values())
names = {"nothing": "nothing", "segments": f"every {per_segment} blocks (√n)", "blocks": "every block"}
print(f"{'checkpointed':<20}{'peak of a step':>15}{'a step':>12}   weights")
for plan, (weights, seconds, curve) in runs.items():
    digest = hashlib.sha256(weights).hexdigest()[:16]
    print(f"{names[plan]:<20}{max(curve) / MiB:>11.1f} MiB{1000 * seconds:>9.1f} ms   {digest}")
print()
for plan, (_, _, curve) in runs.items():
    print(f"{names[plan]:<20}{drawn(curve, highest)}")
same = len({weights for weights, _, _ in runs.values()}) == 1
print(f"\nThe final weights are {'identical' if same else 'NOT identical'}.")
