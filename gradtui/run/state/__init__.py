"""What is known about a run: pure data, built from events alone, and what follows from it.

`run_state.py` is the whole of it. It is made of `tree_state.py`, `series.py`, `findings.py` and the data in `parts/`. The
other rooms derive values of one subject from it; `selectors.py` has those that many subjects need.
"""
