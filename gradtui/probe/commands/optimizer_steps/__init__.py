"""The time between backward and an optimizer's step: hold the run there, or skip the step.

`PauseAtBadStep` holds the run in the pre-hook of the step that would apply NaN or Inf. Only then may commands be applied
between backward and step: those that hold or release the run, `SetGroup` and `SkipStep`. A step is skipped by hiding the
gradients from it, so that the script's call, its schedulers and its own hooks run as ever.
"""
