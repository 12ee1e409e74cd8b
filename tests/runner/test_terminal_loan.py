"""When the script gets the terminal, and when it returns it. No terminal here: the clock and the output are the test's."""

from __future__ import annotations

import bdb
from collections.abc import Callable

import pytest

from gradtui.runner.terminal_loan import TerminalLoan


class Output:
    """Notes what would be shown."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def begin(self) -> None:
        self.done.append("begin")

    def follow(self) -> None:
        self.done.append("follow")

    def append(self, typed: str) -> None:
        self.done.append(typed)


class Loan(TerminalLoan):
    """A loan with a clock that stands still."""

    def __init__(self, close_screen: Callable[[], bool] = lambda: True) -> None:
        self.shown, self.now, self.announced, self.closed = Output(), 100.0, list[bool](), 0

        def close() -> bool:
            self.closed += 1
            return close_screen()

        super().__init__(self.shown, close, self.announced.append, lambda: self.now)  # type: ignore[arg-type]

    def read(self, typed: str = "typed") -> None:
        assert self.begin()
        assert self.goes_on()
        self.end(typed)


def test_terminal_is_returned_moment_after_last_read() -> None:
    loan = Loan()
    assert not loan.goes_on()
    loan.read("one")
    loan.now += 0.4
    assert loan.goes_on()
    loan.read("two")
    loan.now += 0.4
    assert loan.goes_on()
    loan.now += 0.2
    assert not loan.goes_on()
    assert loan.announced == [True, False]
    assert loan.closed == 1
    assert [done for done in loan.shown.done if done != "follow"] == ["begin", "one", "two"]
    loan.read()
    assert loan.closed == 2


def test_while_anybody_reads_it_is_not_returned() -> None:
    loan = Loan()
    assert loan.begin()
    loan.read()
    loan.now += 1_000
    assert loan.goes_on()
    assert not loan.script_ended()
    loan.end("")
    assert loan.script_ended()
    assert not loan.goes_on()


def test_a_dashboard_that_does_not_answer_keeps_it() -> None:
    loan = Loan(lambda: False)
    assert not loan.begin()
    assert not loan.goes_on()
    assert loan.announced == loan.shown.done == []


def test_what_interrupts_wait_for_dashboard_leaves_nothing_behind() -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    loan = Loan(interrupted)
    with pytest.raises(KeyboardInterrupt):
        loan.begin()
    assert not loan.goes_on()


class Debugger(bdb.Bdb):
    """Reads one command from a loan."""

    def interaction(self, loan: Loan, command: Callable[[], object]) -> None:
        loan.read()
        command()


COMMANDS: dict[str, tuple[Callable[[Debugger], Callable[[], object]], bool]] = {
    "step": (lambda debugger: debugger.set_step, True),
    "continue": (lambda debugger: debugger.set_continue, False),
    "quit": (lambda debugger: debugger.set_quit, False),
}


@pytest.mark.parametrize(("command", "stays"), COMMANDS.values(), ids=COMMANDS)
def test_dashboard_stays_away_between_debugger_prompts(
    command: Callable[[Debugger], Callable[[], object]], stays: bool
) -> None:
    loan, debugger = Loan(), Debugger()
    debugger.reset()
    debugger.botframe = None
    debugger.set_break(__file__, 1)  # otherwise `set_continue` ends the tracing of this test, such as coverage's
    debugger.interaction(loan, command(debugger))
    loan.now += 9
    assert loan.goes_on() == stays
    loan.now += 2
    assert not loan.goes_on()


def test_a_debugger_that_is_gone_steps_no_more() -> None:
    loan = Loan()
    Debugger().interaction(loan, lambda: None)
    loan.now += 9
    assert not loan.goes_on()
