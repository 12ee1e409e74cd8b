"""nn-htop with its screen: Textual on the main thread, training on another."""

from collections.abc import Callable

import nn_htop
from torch import nn


def host(model: nn.Module, run: Callable[[], None]) -> None:
    nn_htop.launch_htop(monitor=nn_htop.Monitor(model), train_fn=lambda: run())
