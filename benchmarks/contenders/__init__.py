"""What the loop is compared under, one file each, used the way its package documents.

Each has a context manager `follow(model, optimizer, step, option)` that gives the step to take in place of `step`, or, where
the package insists on the main thread, `host(model, run)`, which has `run` run. `step(after_backward)` takes one step,
and calls `after_backward` between backward and the optimizer's step.
"""
