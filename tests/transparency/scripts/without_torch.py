"""A script that never imports torch, and can tell."""

import json
import sys
from pathlib import Path

Path("result.json").write_text(json.dumps({"sum": sum(range(10))}))
print("torch" in sys.modules, "numpy" in sys.modules)
