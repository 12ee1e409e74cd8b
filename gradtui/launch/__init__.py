"""Put the parts of a run together: a run with a screen or without one, a check, a forecast, and the rank of a job."""
