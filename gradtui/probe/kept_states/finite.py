"""Tell whether a run could continue from its present values: none of them is NaN or Inf where that would spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.kept_states.run_copy import tensors_of
from gradtui.probe.model import state_tensors
from gradtui.probe.torch_private.private_names import no_torch_function
from gradtui.probe.torch_private.unwrap import PLAIN, plain_tensors

WEIGHTS, BUFFERS = "weights", "buffers"


def not_finite(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[str]:
    """Return which values are not finite, each in a word or two; empty if all are. On a device this waits for it.

    Weights that train, and the state of optimizers, must be finite. Buffers, frozen weights and attributes must have no NaN:
    scripts put Inf there on purpose, as in a mask of attention. Gradients do not count: a skipped step leaves them behind.
    """
    optimizers = list(optimizers)
    with torch.no_grad(), no_torch_function():
        tensors = tensors_of(models, optimizers)
        trained = [each for each in tensors if each.requires_grad]
        others = [each for each in tensors if not each.requires_grad]
        bad = {
            WEIGHTS: _has_bad(trained, allows_inf=False),
            "optimizer state": _has_bad(state_tensors(*[each.state for each in optimizers]), allows_inf=False),
            BUFFERS: _has_bad(others, allows_inf=True),
        }
    return [name for name, is_bad in bad.items() if is_bad]


def _has_bad(tensors: Iterable[torch.Tensor], *, allows_inf: bool) -> bool:
    marks: dict[torch.device, list[torch.Tensor]] = defaultdict(list)
    for tensor in tensors:
        for part in _plain(tensor):
            try:
                # `aminmax` propagates NaN, and is ten times as fast as `isfinite`.
                low, high = torch.aminmax(torch.view_as_real(part.resolve_conj()) if part.is_complex() else part)
            except RuntimeError:
                # Some dtypes are not supported, such as 8-bit ones.
                continue
            # Inf less itself is NaN.
            mark = low if allows_inf else (low - low) + (high - high)
            marks[part.device].append(mark.to(torch.float32))
    return any(bool(torch.stack(each).isnan().any()) for each in marks.values())


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    is_plain = type(tensor) in PLAIN and tensor.layout is torch.strided
    for part in (tensor,) if is_plain else plain_tensors(tensor):
        has_values = part.numel() and part.device.type != "meta"
        if has_values and (part.is_floating_point() or part.is_complex()):
            yield part.detach()
