"""The state of a run: plain data that the reducer builds from events alone, and values derived from it.

`run_state.py` has the class `RunState`. It holds `tree_state.py`, `series.py`, `findings.py` and the data in `parts/`. The
other packages derive values of one subject from it; `selectors.py` has those that many subjects need.
"""
