"""Threads that leave the signals of the process to the script."""

from __future__ import annotations

import signal
import threading

from gradtui.system.own_thread import OwnThread

FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS}


def blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_only_faults_reach_own_threads() -> None:
    masks: list[set[int]] = []

    def run() -> None:
        masks.append(blocked())
        further = threading.Thread(target=lambda: masks.append(blocked()))
        further.start()
        further.join()

    before = blocked()
    thread = OwnThread(run, "gradtui-test")
    thread.start()
    assert blocked() == before
    thread.join()
    assert thread.daemon
    everything = {*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}
    assert masks == [everything - FAULTS] * 2
