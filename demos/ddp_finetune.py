"""Fine-tune a head on a frozen backbone with DistributedDataParallel, on several processes of one machine.

    gradtui torchrun --standalone --nproc-per-node 2 demos/ddp_finetune.py

Each process sees its own part of the data. DistributedDataParallel averages the gradients, so all processes hold the same
weights: the last line compares them. With --diverge one process goes astray at step 60: it makes trainable what was frozen when
DistributedDataParallel was made, which then does not average that gradient. PyTorch reports nothing. gradtui names the parameter,
the process and the step.
"""

import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, CLASSES, BATCH = 64, 8, 64


def backbone() -> nn.Sequential:
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*blocks)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = backbone()
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


def digest(model: nn.Module) -> str:
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--diverge", action="store_true", help="let the last process train what the others do not")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two steps, to have time to look")
    arguments = parser.parse_args()

    # torchrun gives each process its rank. A single process, without torchrun, is a job of one.
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)

    torch.manual_seed(0)
    model, teacher = Classifier(), nn.Linear(WIDTH, CLASSES).requires_grad_(False)
    model.backbone.requires_grad_(False)
    # So that gradtui may freeze a layer while it trains: DistributedDataParallel does not wait for its gradient then.
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), 3e-3)
    data = torch.Generator().manual_seed(rank)

    for step in range(arguments.steps):
        if arguments.diverge and step == 60 and rank == ranks - 1:
            model.backbone[3][0].requires_grad_(True)
            optimizer.add_param_group({"params": model.backbone[3][0].parameters()})
        x = torch.randn(BATCH, WIDTH, generator=data)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x), teacher(x).argmax(1))
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)
        time.sleep(arguments.pause)

    digests: list[object] = [None] * ranks
    dist.all_gather_object(digests, digest(model))
    if rank == 0:
        print(
            f"weights of the {ranks} processes:",
            "equal" if len(set(digests)) == 1 else f"not equal: {digests}",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
