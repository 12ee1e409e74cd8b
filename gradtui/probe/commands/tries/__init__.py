"""Tries: a change and the unchanged run side by side, on the same batches of the script's own DataLoader."""
