"""What a curve over steps shows beside its values: markers of changes, breakpoints, the direction of the loss."""
