"""Ctrl-C while a command runs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from mulligan.cli.options import run


def test_ctrl_c_waits_for_the_end_of_a_step() -> None:
    """A step of the loop that has found a future undone can still set it: the command is cancelled after it, not in its midst."""
    seen: list[int] = []

    async def work() -> None:
        this = asyncio.current_task()
        assert this is not None
        signal.raise_signal(signal.SIGINT)
        seen.append(this.cancelling())
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(this.cancelling())

    with pytest.raises(KeyboardInterrupt):
        run(work())
    assert seen == [0, 1]


def test_a_second_ctrl_c_interrupts_what_does_not_stop() -> None:
    """A command that cleans up for too long is left at once."""

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it was not interrupted")

    with pytest.raises(KeyboardInterrupt):
        run(work())


def test_a_second_ctrl_c_interrupts_a_step_that_does_not_end() -> None:
    """A step that never comes back to the loop is left by the second one, though nothing could cancel it."""
    is_over = threading.Event()

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        later = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
        later.start()
        is_over.wait(20)
        pytest.fail("it was not interrupted")

    with pytest.raises(KeyboardInterrupt):
        run(work())


def test_a_second_ctrl_c_leaves_nothing_behind() -> None:
    """It comes while the loop itself waits; the next Ctrl-C in this process is Python's own again."""

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(20)
            pytest.fail("it was not interrupted")

    with pytest.raises(KeyboardInterrupt):
        run(work())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As for a program that a shell has put into the background: Ctrl-C is meant for another one."""

    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(work()) == "done"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_command_that_ends_all_the_same_has_an_answer() -> None:
    """What was done is told, although it was told to stop; and the next Ctrl-C is Python's own again."""

    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done"
        return ""

    assert run(work()) == "done"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_command_in_another_thread_runs_without_signals() -> None:
    """Signals come to the main thread only."""
    answers: list[str] = []

    async def work() -> str:
        return "done"

    thread = threading.Thread(target=lambda: answers.append(run(work())))
    thread.start()
    thread.join(10)
    assert answers == ["done"]
