"""Make the pictures of the manual: real runs in a pseudo-terminal, drawn as SVG. `python docs/make_cast.py [NAME …]`.

`docs/cast.svg` moves: one frame after the other, each with the keys that led to it. A row of cells that occurs in several
frames is drawn once, so that the file stays small.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte.screens

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from terminal_session import TerminalSession  # noqa: E402

CELL, LINE = 8.4, 18.0
"""Width and height of a cell, in pixels at a font size of 14."""
MARGIN, CAPTION = 12, 34
FOREGROUND, BACKGROUND = "e0e0e0", "121212"
NAMED = {
    "black": "000000", "red": "c04040", "green": "40a040", "brown": "b0a040", "blue": "4060c0", "magenta": "a040a0",
    "cyan": "40a0a0", "white": "d0d0d0",
}  # fmt: skip


class Act(NamedTuple):
    """One thing that the user does, and what the picture then shows.

    Attributes:
        caption: said below the screen.
        keys: what is typed.
        wait: a text that the screen must show before the first frame.
        frames: how many frames are taken, one a second; 0 takes none.
        hold: seconds that each frame stays.
    """

    caption: str
    keys: Sequence[str] = ()
    wait: str = ""
    frames: int = 1
    hold: float = 2.0


class Scene(NamedTuple):
    """A run and what is done to it. With several frames the picture moves."""

    command: tuple[str, ...]
    acts: tuple[Act, ...]
    columns: int = 120
    lines: int = 36


class Style(NamedTuple):
    """How cells next to each other look."""

    foreground: str
    background: str
    bold: bool
    italic: bool
    underlined: bool


Row = tuple[tuple[int, str, Style], ...]
"""Runs of cells of one style: the first column, the text and the style."""


class Frame(NamedTuple):
    """A screen, what is said below it, and for how many seconds it stays."""

    rows: tuple[Row, ...]
    caption: str
    hold: float


def colour(name: str, default: str) -> str:
    """Return the six hexadecimal digits of a colour of pyte."""
    return default if name == "default" else NAMED.get(name.removeprefix("bright"), name)


def style(cell: pyte.screens.Char) -> Style:
    """Return the style of a cell, with reversed colours exchanged."""
    front, back = colour(cell.fg, FOREGROUND), colour(cell.bg, BACKGROUND)
    if cell.reverse:
        front, back = back, front
    return Style(front, back, cell.bold, cell.italics, cell.underscore)


def rows_of(screen: pyte.Screen) -> tuple[Row, ...]:
    """Return what is on the screen."""
    rows = []
    for line in range(screen.lines):
        cells = [(column, screen.buffer[line][column]) for column in range(screen.columns)]
        runs = [(look, list(run)) for look, run in groupby(cells, key=lambda each: style(each[1]))]
        rows.append(tuple((run[0][0], "".join(cell.data or " " for _, cell in run), look) for look, run in runs))
    return tuple(rows)


def row_svg(row: Row) -> str:
    """Draw a row at the top left corner: backgrounds, then texts, each as wide as its cells."""
    parts = []
    for column, text, look in row:
        if look.background != BACKGROUND:
            width = len(text) * CELL + 0.3  # no gap between neighbours
            parts.append(f'<rect x="{column * CELL:.5g}" width="{width:.5g}" height="18.3" fill="#{look.background}"/>')
    for column, text, look in row:
        for begin, word in words(text):
            kind = "".join(name for name, on in zip("biu", look[2:]) if on)
            parts.append(
                f'<text x="{(column + begin) * CELL:.5g}" y="14" textLength="{len(word) * CELL:.5g}" fill="#{look.foreground}"'
                + (f' class="{" ".join(kind)}"' if kind else "")
                + f">{html.escape(word, quote=False)}</text>"
            )
    return "".join(parts)


def words(text: str) -> list[tuple[int, str]]:
    """Return the parts of a text between wide gaps, with their columns: a gap needs no element."""
    found, begin = [], 0
    for part in text.split("   "):
        word = part.strip(" ")
        if word:
            found.append((begin + len(part) - len(part.lstrip(" ")), word))
        begin += len(part) + 3
    return found


def picture(frames: Sequence[Frame], columns: int) -> str:
    """Draw the frames one after the other, for ever; a viewer without animation shows the first."""
    moves = len(frames) > 1
    ids: dict[Row, str] = {}
    for frame in frames:
        for row in frame.rows:
            ids.setdefault(row, f"r{len(ids)}")
    lines = len(frames[0].rows)
    width, height = columns * CELL + 2 * MARGIN, lines * LINE + 2 * MARGIN + (CAPTION if moves else 0)
    total, now, keyframes, drawn = sum(frame.hold for frame in frames), 0.0, [], []
    for number, frame in enumerate(frames):
        begin, end = 100 * now / total, 100 * (now + frame.hold) / total
        now += frame.hold
        if moves:
            keyframes.append(
                f"@keyframes f{number}{{0%{{visibility:{'hidden' if number else 'visible'}}}"
                f"{begin:.2f}%{{visibility:visible}}{end:.2f}%,100%{{visibility:hidden}}}}"
                f"#f{number}{{animation:f{number} {total:g}s step-end infinite}}"
            )
        uses = "".join(f'<use href="#{ids[row]}" y="{line * LINE:g}"/>' for line, row in enumerate(frame.rows) if row)
        caption = f'<text class="c" x="0" y="{lines * LINE + CAPTION - 6:g}">{html.escape(frame.caption)}</text>'
        hidden = ' visibility="hidden"' if number else ""
        drawn.append(f'<g id="f{number}"{hidden}>{uses}{caption if moves else ""}</g>')
    rows = "".join(f'<g id="{name}">{row_svg(row)}</g>' for row, name in ids.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">'
        "<style>text{font:14px 'DejaVu Sans Mono','Fira Code',Menlo,Consolas,monospace;white-space:pre}"
        ".b{font-weight:bold}.i{font-style:italic}.u{text-decoration:underline}"
        f".c{{font:bold 17px sans-serif;fill:#ffffff}}{''.join(keyframes)}</style>"
        f"<defs>{rows}</defs>"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#{BACKGROUND}"/>'
        f'<g transform="translate({MARGIN} {MARGIN})">{"".join(drawn)}</g></svg>\n'
    )


def play(scene: Scene) -> list[Frame]:
    """Run the command, do what the scene says, and take the frames."""
    environment = {"COLORTERM": "truecolor", "TERM": "xterm-256color"}
    command = (sys.executable, "-m", "gradtui", *scene.command)
    frames = []
    with TerminalSession(command, columns=scene.columns, lines=scene.lines, env=environment, cwd=ROOT) as terminal:
        for act in scene.acts:
            for key in act.keys:
                terminal.send(key)
                watch(terminal, 0.5)
            if act.wait:
                terminal.wait_for(act.wait)
            for _ in range(act.frames):
                watch(terminal, 1.0)
                frames.append(Frame(rows_of(terminal.screen), act.caption, act.hold))
    return frames


def watch(terminal: TerminalSession, seconds: float) -> None:
    """Take in what is drawn within this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        terminal.read()


DOWN, ENTER, ESCAPE = "\x1b[B", "\r", "\x1b"
SCENES = {
    "cast": Scene(
        ("demos/coop_like.py",),
        (
            Act("gradtui train.py: an unedited script, and what autograd does with it", wait="5,376 trainable", frames=0),
            Act("gradtui train.py: an unedited script, and what autograd does with it", wait="passes 101", frames=3, hold=1.2),
            Act("/ finds a row; the panel below the tree says why it is in its state", ["/", "blocks.7", ENTER], frames=2),
            Act("space shows what an unfreeze would change …", [" "], wait="again", frames=1, hold=3.0),
            Act("… space again does it, at the next optimizer step", [" "], wait="froze", frames=2),
            Act("space, space: frozen again. Ten steps later: unchanged to the bit", [" ", " "], wait="bit", frames=2),
            Act("t profiles a step: who holds the memory at its peak", ["t"], frames=2),
            Act("g opens the plots", [ESCAPE, "g"], frames=1, hold=3.0),
            Act("q leaves the dashboard; training continues, or stops", [ESCAPE, "q"], frames=1, hold=2.5),
        ),
    ),
}  # fmt: skip


def main() -> None:
    """Make the pictures that the command line names, all of them without a name."""
    for name in sys.argv[1:] or SCENES:
        scene = SCENES[name]
        path = ROOT / "docs" / ("cast.svg" if name == "cast" else f"screens/{name}.svg")
        path.write_text(picture(play(scene), scene.columns), encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main()
