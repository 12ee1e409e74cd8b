"""The learning rate and weight decay of param groups, and the learning rate of some parameters of one."""
