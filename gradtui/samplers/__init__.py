"""Device and host numbers, read on a clock by a thread of their own, never on the training thread."""
