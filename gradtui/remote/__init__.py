"""A run and other processes: where it listens, the ranks of a job, and what asks and steers it from elsewhere."""
