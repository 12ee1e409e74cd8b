"""torch.func: gradients of samples, without a backward."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
from torch.func import functional_call, grad, vmap

model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))


def loss_of(parameters, sample, target):
    return (functional_call(model, parameters, (sample.unsqueeze(0),)).squeeze() - target).square()


for step in range(10):
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    inputs = torch.randn(6, 5)
    slopes = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, inputs, inputs.sum(1))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter -= 0.05 * slopes[name].mean(0)
    print(step, {name: slope.norm().item() for name, slope in slopes.items()})
leave(model)
