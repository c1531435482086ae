"""How many tokens a second a stage trained on, from one line of its log to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limbeck.report.page.plain_values import number


class TokenRate:
    """Reads the lines of a log in their order and tells the rate since the line before.

    The rate is (tokens here - tokens before) / (seconds here - seconds before - seconds of evaluation between).
    Lines of runs that logged no times have none, and neither has the line after them.
    """

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = (0.0, 0.0)  # Tokens and seconds.
        self._paused = 0.0

    def read(self, entry: Mapping[str, Any]) -> float | None:
        """Take the next line; return tokens a second where it tells the loss of steps, and when that was."""
        if "loss" not in entry:
            self._paused += max(number(entry, "eval_runtime") or 0.0, 0.0)
            return None
        tokens, seconds = number(entry, "tokens"), number(entry, "seconds")
        before, paused = self._before, self._paused
        self._before = None if tokens is None or seconds is None else (tokens, seconds)
        self._paused = 0.0
        if before is None or tokens is None or seconds is None:
            return None
        spent, trained = seconds - before[1] - paused, tokens - before[0]
        return trained / spent if spent > 0 and trained >= 0 else None
