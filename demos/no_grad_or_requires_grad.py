"""Four ways to leave an encoder alone, and what each costs: requires_grad on or off, with and without torch.no_grad().

A prompt in front of an encoder and a head behind it are trained; the encoder between them is treated in each of the four
ways. What that means for the encoder and for the prompt in front of it:

    requires_grad  no_grad    encoder                                       prompt
    True           no         gets gradients and learns                     learns
    False          no         stores none, but passes the gradient on       learns: its gradient passes through the encoder
    True           yes        gets none, though its optimizer owns it       cut off: gets none either
    False          yes        gets none                                     cut off

Under gradtui the line beside the model tree runs through the encoder in the first two and stops at the head in the others;
`enter` on the tree's first row compares all four, and so does `--summary` (`models`).
"""

import torch
from torch import nn
from torch.nn import functional as F

width, layers, batch, length = 256, 8, 64, 16
steps = 12
device = "cuda" if torch.cuda.is_available() else "cpu"
MiB = 1024**2


def block():
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class Prompted(nn.Module):
    def __init__(self, encoder_trains, no_grad):
        super().__init__()
        self.no_grad = no_grad
        self.prompt = nn.Parameter(torch.randn(4, width) * 0.1)
        self.encoder = nn.Sequential(*[block() for _ in range(layers)]).requires_grad_(encoder_trains)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = torch.cat([self.prompt.expand(len(x), -1, -1), x], dim=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.no_grad):
            x = self.encoder(x)
        return self.head(x.mean(dim=1))


def kept_for_backward(model, x):
    """Bytes that autograd keeps if this forward is run; parameters are there anyway and do not count."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x)
    return sum(kept.values())


def train(encoder_trains, no_grad):
    torch.manual_seed(0)
    model = Prompted(encoder_trains, no_grad).to(device)
    x, y = torch.randn(batch, length, width, device=device), torch.randint(0, 10, (batch,), device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    before = [model.prompt.detach().clone(), model.encoder[0][1].weight.detach().clone()]
    activations = kept_for_backward(model, x)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    moved = [not torch.equal(a, b) for a, b in zip(before, [model.prompt, model.encoder[0][1].weight])]
    learns = ["learns" if each else "still" for each in moved]
    print(
        f"{encoder_trains!s:<15}{'yes' if no_grad else 'no':<9}{trainable:>10,}{gradients / MiB:>11.2f} MiB"
        f"{activations / MiB:>12.2f} MiB   {learns[1]:<9}{learns[0]:<8}{loss.item():.3f}"
    )


print("requires_grad  no_grad   trainable      gradients       kept for      encoder  prompt  loss")
print("of the encoder           parameters                     backward")
for encoder_trains, no_grad in [(True, False), (False, False), (True, True), (False, True)]:
    train(encoder_trains, no_grad)
