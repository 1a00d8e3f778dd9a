"""One line a step, with the time since the start, and a sign of life in long ones."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 30
_start = time.monotonic()


def say(message: str) -> None:
    """Print a line to standard error; standard output is for results."""
    print(f"[{time.monotonic() - _start:6.1f} s] {message}", file=sys.stderr, flush=True)


@contextmanager
def step(message: str) -> Iterator[None]:
    """Say what is being done, and every 30 s that it still is."""
    say(message)
    started = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"... {message}: {time.monotonic() - started:.0f} s so far")

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        done.set()
