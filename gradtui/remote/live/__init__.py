"""Live runs and other processes: what a run answers, the clients that ask and steer it, and its dashboard elsewhere."""
