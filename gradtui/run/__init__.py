"""One account of a run: its state, the reducer that builds the state from events, the findings and the sentences."""
