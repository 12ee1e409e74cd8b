"""A run that is interrupted and resumed: everything that has to come back, and what happens if one thing does not.

    python demos/resume.py                        trains 45 steps; saves resume.pt after the 40th
    python demos/resume.py --resume               continues from there: step 41 has the loss that it had in the first run
    python demos/resume.py --resume --forget rng  the same without the random state
                                    --forget: optimizer, scheduler, rng, order (of the parameters), freeze (of blocks.2)

Under gradtui each line of the last kind gets a finding that says what was not restored. The file has five entries, none of
which is spare: the weights, the moments, the place in the schedule, the random state (the order of the data, and dropout)
and the number of steps.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

steps, saved_step, file = 45, 40, "resume.pt"
resumes = "--resume" in sys.argv
forgets = sys.argv[sys.argv.index("--forget") + 1] if "--forget" in sys.argv else ""

torch.manual_seed(0)
model = nn.Sequential()
model.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1)) for _ in range(3)))
model.head = nn.Linear(16, 4)
x = torch.randn(640, 16)
loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=32, shuffle=True)

# What was frozen when the training was saved must be so when it is resumed: the optimizer has only what trains.
model.blocks[2].requires_grad_(resumes and forgets == "freeze")
order = [*reversed(model.blocks), model.head] if forgets == "order" else [*model.blocks, model.head]
trains = [parameter for module in order for parameter in module.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trains, lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
step = 0

if resumes:
    checkpoint = torch.load(file)
    model.load_state_dict(checkpoint["model"])
    if forgets != "optimizer":
        optimizer.load_state_dict(checkpoint["optimizer"])
    if forgets != "scheduler":
        scheduler.load_state_dict(checkpoint["scheduler"])
    if forgets != "rng":
        torch.set_rng_state(checkpoint["rng"])
    step = checkpoint["step"]

while step < steps:
    for inputs, targets in loader:
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step > saved_step or step == 1:
            print(f"step {step}  loss {loss.item():.6f}  lr {scheduler.get_last_lr()[0]:.6f}")
        if step == saved_step and not resumes:
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "rng": torch.get_rng_state(),
                    "step": step,
                },
                file,
            )
        if step == steps:
            break
