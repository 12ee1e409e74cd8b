"""The parts of the dashboard. Each turns a `RunState` into lines; none of them holds a fact about the run."""
