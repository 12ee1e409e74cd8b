"""The boundary between two steps: it takes the waiting commands, holds the run, and decides among ranks.

`boundary.py` holds the run. `Pause`, `Resume`, `RunSteps` and `RunTo` replace each other; breakpoints stay set until they are
reached or cleared. The probe compares steps and learning rates at each boundary, loss and norm when their measurement
arrives. The viewer compares memory and findings, and sends `Pause`.
"""
