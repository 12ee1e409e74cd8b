"""A rule and a reader of a logger for gradtui."""
