"""torch.compile in every style or in few, and export: prints what dynamo made of each."""

import json
import shutil
import sys
from pathlib import Path

import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(5)
ALL = "all" in sys.argv
# The default backend needs a compiler of C++, which a machine may lack, for 20 s.
WHOLE = "inductor" if ALL and shutil.which("g++") else "aot_eager"
counts = {"steps": 0, "micro_steps": 0, "skipped": 0}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.tanh(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, broken=False):
        super().__init__()
        self.first, self.second, self.head = Block(), Block(), nn.Linear(4, 2)
        self.broken = broken

    def forward(self, x):
        x = self.first(x)
        if self.broken:
            torch._dynamo.graph_break()
        return self.head(self.second(x))


def whole(model):
    return torch.compile(model, backend=WHOLE, fullgraph=True)


def wrapped(model):
    return torch.compile(model, backend="aot_eager")


def in_place(model):
    model.compile(backend="eager")
    return model


def function(model):
    return torch.compile(lambda x: model(x) * 2, backend="aot_eager")


def blocks(model):
    for block in (model.first, model.second):
        block.compile(backend="aot_eager")
    return model


def tell(title):
    # What watches steps is called at the step of an optimizer, compiled or not: of that, only the graphs are the same.
    asked = ("stats",) if title == "compiled step" else ("stats", "frames", "graph_break", "recompiles")
    found = {name: dict(counters[name]) for name in asked}
    print(title, json.dumps(found, sort_keys=True))
    counters.clear()


def train(title, style, net, sizes=(6, 6, 6), optimizer_step=lambda optimizer: optimizer.step):
    torch._dynamo.reset()
    counters.clear()
    forward = style(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.01))
    step = optimizer_step(optimizer)
    for rows in sizes:
        x = torch.randn(rows, 4)
        if title == "dynamic":
            torch._dynamo.mark_dynamic(x, 0)
        forward(x).square().mean().backward()
        step()
        optimizer.zero_grad()
        counts["steps"] += 1
        counts["micro_steps"] += 1
    tell(title)
    print([p.sum().item() for p in net.parameters()])


train("whole", whole, Net())
train("a break", blocks, Net(broken=True))
if ALL:
    net = Net()
    model = torch.compile(net, backend="aot_eager")
    train("by itself", lambda net: model, net)
    for style in (wrapped, in_place, function, blocks):
        train(style.__name__, style, Net())
    for style in (wrapped, function, in_place):
        train("a break", style, Net(broken=True))
    train("recompiled", wrapped, Net(), sizes=(6, 7, 8, 9))
    train("dynamic", wrapped, Net(), sizes=(6, 7, 8, 9))
    train("compiled step", wrapped, Net(), optimizer_step=lambda o: torch.compile(o.step, backend="eager"))
frozen = Net()
frozen.first.requires_grad_(False)
train("frozen", wrapped, frozen)
for strict in (True, False) if ALL else (False,):
    program = torch.export.export(Net(), (torch.randn(6, 4),), strict=strict)
    print("export", strict, [str(node.target) for node in program.graph.nodes])
tell("export")
torch.save([frozen.state_dict(), torch.get_rng_state()], "weights.pt")
Path("counts.json").write_text(json.dumps(counts))
