"""What is known of a run, written down for other programs. Pure: nothing here touches torch or a screen."""
