"""Where training's memory goes: what is held after load, forward, backward and step, and what changes it.

A small Transformer is trained a few steps in each of several ways; after each phase of the first step and at the second step's
forward the script adds up what its tensors hold. Run it as it is for the table, or under a memory viewer to see the same
figures from outside.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

width, layers, heads, batch, length = 256, 6, 8, 32, 64
steps = 6
device = "cuda" if torch.cuda.is_available() else "cpu"
MiB = 1024**2


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)


def data():
    return torch.randn(batch, length, width, device=device)


def size(tensors):
    """Bytes of the storages of some tensors, each counted once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def optimizer_tensors(optimizer):
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def kept_for_backward(model, forward):
    """What autograd keeps if this forward is run, counted as it is kept; parameters are there anyway and do not count."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(kept.values())


def report(moment, model, optimizer=None, activations=0):
    parameters = size(model.parameters())
    gradients = size(p.grad for p in model.parameters() if p.grad is not None)
    state = size(optimizer_tensors(optimizer)) if optimizer else 0
    total = parameters + gradients + state + activations
    cells = "".join(f"{value / MiB:12.1f}" for value in (parameters, gradients, state, activations, total))
    print(f"  {moment:<28}{cells}")


def heading(title):
    print(
        f"\n{title}\n  {'after':<28}{'parameters':>12}{'gradients':>12}{'optimizer':>12}{'activations':>12}{'together':>12}"
    )


def train(title, make_optimizer, autocast=False):
    heading(title)
    model, x, y = encoder(), data(), data()
    optimizer = make_optimizer(model.parameters())
    report("load", model, optimizer)

    def loss():
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            return F.mse_loss(model(x).float(), y)

    activations = kept_for_backward(model, loss)
    for step in range(steps):
        value = loss()
        if step < 2:
            report(f"forward of step {step + 1}", model, optimizer, activations)
        if step:
            optimizer.zero_grad()
        value.backward()
        if step == 0:
            report("backward", model, optimizer)
        optimizer.step()
        if step == 0:
            report("optimizer step", model, optimizer)


def inference(title, keeps_graph):
    heading(title)
    model, x = encoder(), data()
    with torch.set_grad_enabled(keeps_graph):
        activations = kept_for_backward(model, lambda: model(x))
        for _ in range(steps):
            output = model(x)
    report("a forward, output at hand", model, activations=activations)
    del output


def load_checkpoint(title, map_location, delete):
    heading(title)
    model, x, y = encoder(), data(), data()
    optimizer = torch.optim.Adam(model.parameters())
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        checkpoint = torch.load(path, map_location=map_location)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    where = next(iter(checkpoint["model"].values())).device.type
    extra = size(checkpoint["model"].values())
    if delete:
        del checkpoint
        extra = 0
    for _ in range(steps):
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    report("resuming", model, optimizer)
    print(f"  and the checkpoint's own copy of the model: {extra / MiB:.1f} MiB on the {where}")


train("Adam: moments of twice the model from the first step on", torch.optim.Adam)
train("Adam under bf16 autocast: smaller activations, the rest as before", torch.optim.Adam, autocast=True)
train("RMSprop: one average, once the model", torch.optim.RMSprop)
train("SGD: no state", lambda parameters: torch.optim.SGD(parameters, lr=0.1))
inference("inference without no_grad: the graph is kept as long as the output", keeps_graph=True)
inference("inference under no_grad", keeps_graph=False)
load_checkpoint("a checkpoint, kept after loading", None, delete=False)
load_checkpoint("a checkpoint, loaded to the CPU (map_location) and deleted", "cpu", delete=True)
