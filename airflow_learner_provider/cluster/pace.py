"""How fast something may be done that many do at once."""

from __future__ import annotations

import asyncio


class Pace:
    """Lets so many through in a second, in the order in which they came.

    :param burst: how many may go at once after a pause.
    """

    def __init__(self, *, a_second: float, burst: int) -> None:
        self._pause = 1 / a_second
        self._ahead = burst / a_second
        self._due: float | None = None
        self._queue = asyncio.Lock()

    async def take(self) -> None:
        """Wait until it is this one's turn."""
        async with self._queue:
            now = asyncio.get_running_loop().time()
            due = now if self._due is None else self._due
            if due > now + self._ahead:
                await asyncio.sleep(due - now - self._ahead)
            self._due = max(due, now) + self._pause
