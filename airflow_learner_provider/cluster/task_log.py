"""Where the user looks: the log of the task."""

from __future__ import annotations

from typing import Any, Protocol


class Log(Protocol):
    """What is used of a logger; Airflow's own is not a `logging.Logger`."""

    def info(self, message: str, /, *args: Any) -> Any:
        """Log something that goes as it should."""

    def warning(self, message: str, /, *args: Any) -> Any:
        """Log something that may go wrong."""
