"""The real screen with a mistake of ours in it: training is not touched, and the terminal is given back."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.waiting import wait_until

from .running import OVER, PYTHON, TRAIN, Screen, run

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).with_name("broken_launch.py")
SCRIPT = TRAIN + "until('go')\nprint('trained on', flush=True)\nsys.exit(3)\n"
APP = "gradtui.tui.app.app:GradtuiApp"
GIVES_UP = [
    f"{APP}.__init__",
    f"{APP}.on_mount",
    f"{APP}._tick",
    "gradtui.tui.terminal.driver:ThreadDriver.process_message",
]
PANELS = [
    "panels.memory:MemoryPanel.lines_for", "panels.output:OutputPanel.update", "tree.view:ModuleTree.update",
    "panels.curves:CurvesPanel.redraw_curve",
]  # fmt: skip


@pytest.mark.parametrize("where", GIVES_UP)
def test_training_goes_on_in_the_terminal(where: str, tmp_path: Path) -> None:
    with Screen(tmp_path, SCRIPT, launcher=(str(LAUNCHER), where)) as session:
        session.wait_until((tmp_path / "trains").exists, "training")
        if "process_message" in where:
            session.wait_until(lambda: session.full_screen, "the screen")
            session.send("j")
        session.wait_until(lambda: "the screen is closed" in session.text, "the terminal given back")
        session.wait_until(lambda: session.problems_left() == [], "the terminal as it was")
        (tmp_path / "go").touch()
        assert session.wait_end() == 3
        assert session.problems_left() == []
        printed = session.raw.decode(errors="replace").split("the screen is closed")[1]
        assert "trained on\r\n" in printed
        assert printed.count("the dashboard failed") == 1
        assert "a mistake of ours" in printed


@pytest.mark.parametrize("where", PANELS)
def test_a_panel_that_fails_costs_itself(where: str, tmp_path: Path) -> None:
    with Screen(tmp_path, SCRIPT, launcher=(str(LAUNCHER), f"gradtui.tui.{where}")) as session:
        session.wait_training()
        session.wait_for("this panel failed: RuntimeError: a mistake of ours")
        (tmp_path / "go").touch()
        session.wait_until(lambda: "trained on" in session.log and OVER.search(session.text), "the end on the screen")
        session.send("q")
        assert session.wait_end() == 3
        assert session.problems_left() == []


def test_killed_plot_server_leaves_braille(tmp_path: Path) -> None:
    with Screen(tmp_path, SCRIPT) as session:
        session.plot_server().kill()
        session.wait_training()
        session.wait_for("┤")
        (tmp_path / "go").touch()
        assert session.leave() == 3
        assert session.problems_left() == []
        assert "the dashboard failed" not in session.text


def test_terminal_that_takes_nothing_does_not_hold_training(tmp_path: Path) -> None:
    # As a slow line or a terminal that is being scrolled: nobody reads what is drawn.
    with Screen(tmp_path, SCRIPT) as session:
        session.wait_training()
        session.wait_for("trainable")
        (tmp_path / "go").touch()
        # Nothing is read from here on: only the log tells.
        log = next((tmp_path / "gradtui").glob("*.log"))
        wait_until(lambda: "trained on" in log.read_text(), "the end of training")
        assert session.leave() == 3
        assert session.problems_left() == []


PROBE = [
    "gradtui.probe.session:install", "gradtui.probe.samplers.sampler:SamplerThread.start",
    "gradtui.probe.probe:Probe.detach", "gradtui.run.reducer:apply", "gradtui.records.export.summary:summarise",
]  # fmt: skip


@pytest.mark.parametrize("where", PROBE)
def test_without_screen_no_part_of_ours_ends_run(where: str, tmp_path: Path) -> None:
    script = TRAIN + "print(*weights())\nsys.exit(3)\n"
    ours = run([*PYTHON, str(LAUNCHER), where, "--plain", "--summary", "s.json"], tmp_path / "run", script)
    assert ours.returncode == 3, ours.stderr.decode()
    assert ours.stdout.decode().split() == [repr(number) for number in _weights_by_hand(3)]
    assert b"Traceback" not in ours.stderr, ours.stderr.decode()


def _weights_by_hand(steps: int) -> tuple[float, float]:
    """What plain SGD makes of the loss sum(w x + b) over two rows of ones: each gradient is 2."""
    import torch

    weight, bias = torch.full((4,), 0.5), torch.tensor(0.5)
    for _ in range(steps):
        weight, bias = weight - 1e-3 * torch.full((4,), 2.0), bias - 1e-3 * torch.tensor(2.0)
    return weight.sum().item(), bias.item()
