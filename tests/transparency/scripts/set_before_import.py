"""What torch reads when it is imported is set by the script before that, and the import is one that may fail.

Python's generator is seeded before it, too: whoever draws a number as the probe is attached changes what is drawn later.
"""

import os
import random
import sys

random.seed(0)
os.environ["OMP_NUM_THREADS"] = "2"
print("torch" in sys.modules)
try:
    import torch_of_another_name  # noqa: F401
except ModuleNotFoundError as error:
    print(error)
import torch

print(torch.get_num_threads(), type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
print([type(finder).__module__ for finder in sys.meta_path])
from ending import leave

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _step in range(5):
    optimizer.zero_grad()
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
leave(model)
