"""Export a run's state for other programs. Pure: no module here touches torch or a screen."""
