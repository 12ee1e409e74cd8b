"""A secret among the arguments of a script leaves the process nowhere, and files with arguments are their owner's only."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from helpers.fork_server import python

SECRET = "S3CRETxyz"
SCRIPT = """
import sys, torch, gradtui
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
watch = gradtui.watch(model, optimizer)
for number in range(6):
    if number == 2:
        watch.freeze("bias")
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
raise ValueError("no access with " + sys.argv[2])
"""


def test_neither_files_nor_lines_have_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.jsonl").write_text('{"gradtui_recording": 1}\n')
    (tmp_path / "run.jsonl").chmod(0o644)
    options = ("--plain", "--summary", "s.json", "--record", "run.jsonl")
    secrets = ("--api-key", SECRET, f"--token={SECRET}", f"HF_TOKEN={SECRET}")
    done = python("-m", "gradtui", *options, "train.py", *secrets, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 1
    traceback, closing = done.stderr.split(f"ValueError: no access with {SECRET}\n"), done.stderr.splitlines()
    assert "Traceback" in traceback[0], "what the script prints stays"
    assert not [line for line in closing if line.startswith("gradtui") and SECRET in line]
    assert "train.py --api-key '***' '--token=***' 'HF_TOKEN=***'" in done.stderr
    report = python("-m", "gradtui", "report", "run.jsonl", "-o", "report.md", cwd=tmp_path, fresh=True)
    assert report.returncode == 0, report.stderr
    made = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "train.py"]
    assert {path.suffix for path in made} == {".json", ".jsonl", ".toml", ".py", ".md"}
    assert not [path for path in made if SECRET in path.read_text()]
    if sys.platform != "win32":
        assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
