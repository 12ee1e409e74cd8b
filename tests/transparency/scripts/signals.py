"""Handlers of the script answer the signals that it sends itself."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import os
import signal

heard = []
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    before = signal.signal(
        number, lambda given, frame: heard.append((signal.Signals(given).name, frame.f_code.co_name))
    )
    print(signal.Signals(number).name, before == signal.SIG_DFL, before == signal.default_int_handler)


def main():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in numbers:
        optimizer.zero_grad()
        model(torch.randn(4, 4)).square().sum().backward()
        os.kill(os.getpid(), number)
        optimizer.step()
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
    leave(model)


main()
print(heard)
