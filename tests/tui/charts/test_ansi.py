from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.charts.ansi import FIRST_INK, parse

KEYS = ("axis", "red")
RESET, BACKGROUND = "\x1b[0m", "\x1b[48;5;15m"


def ink(index: int) -> str:
    return f"\x1b[38;5;{FIRST_INK + index}m"


def test_inks_become_style_keys() -> None:
    text = f"{RESET}{ink(0)}{BACKGROUND}  1e0┤{RESET}{ink(1)}⣿⣿{RESET}\n{RESET}{ink(0)}└─{RESET}"
    assert parse(text, KEYS) == ((("  1e0┤", "axis"), ("⣿⣿", "red")), (("└─", "axis"),))


def test_text_without_colour_is_plain() -> None:
    assert parse("ab\n", KEYS) == ((("ab", ""),),)
    assert parse(f"{ink(1)}a{RESET}b", KEYS) == ((("a", "red"), ("b", "")),)


def test_other_colours_are_plain() -> None:
    for sequence in ("\x1b[38;5;9m", ink(2), ink(200)):
        assert parse(f"{ink(1)}a{sequence}b", KEYS) == ((("a", "red"), ("b", "")),), sequence


def test_other_sequences_and_control_characters_are_dropped() -> None:
    text = f"{ink(1)}a\x1b[2J\x1b[?25l\x1b[3;4Hb\x1b]0;title\x07c\x1b]8;;x\x1b\\d\x1b(Be\x1b7f\rg\x07h\x1b"
    ((*runs,),) = parse(text, KEYS)
    assert runs == [(character, "red") for character in "abcde"] + [("fgh", "red")]


@given(st.text(st.sampled_from("\x1b[]0123456789;:?mHJ\x07\\ ⣿a\r\n"), max_size=60))
def test_nothing_that_could_steer_a_terminal_comes_through(text: str) -> None:
    for line in parse(text, KEYS):
        assert all(run_text.isprintable() and key in {"", *KEYS} for run_text, key in line)


def test_large_picture_costs_fraction_of_millisecond() -> None:
    row = "".join(f"{RESET}{ink(i % 2)}{BACKGROUND}⣿⣿⣿⣿⣿⣿⣿⣿{RESET}  " for i in range(10))
    text = "\n".join([row] * 20)
    times = []
    for _ in range(30):
        start = time.thread_time()
        lines = parse(text, KEYS)
        times.append(time.thread_time() - start)
    assert [sum(len(run_text) for run_text, _ in line) for line in lines] == [100] * 20
    # About 0.25 ms is usual; a picture a second must not be felt even on a slow machine.
    assert min(times) < 0.002
