"""The module tree: its rows by number, stacks of blocks, well-known parts of a model; how rows are selected and found."""
