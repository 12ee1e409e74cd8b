"""The communication hooks of `DistributedDataParallel`. Training thread."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel


def averages_every_step(wrapper: DistributedDataParallel) -> bool:
    """Return whether the wrapper combines the gradients of all ranks in every step, as far as that is known.

    With torch's `post_localSGD_hook` it does not: ranks differ on purpose, until the script averages their parameters. Only the
    private `_comm_hooks` has the hooks. Where it is missing there are none.
    """
    hooks = getattr(wrapper, "_comm_hooks", ())
    return all(getattr(hook, "__name__", "") != "post_localSGD_hook" for hook, _ in hooks)
