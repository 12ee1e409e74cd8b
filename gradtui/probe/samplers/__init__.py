"""Device and host measurements, read at fixed intervals on a separate thread, never on the training thread."""
