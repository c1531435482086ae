"""Twelve students of a search's generation under one teacher, beside the same students one by one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from benchmarks.gpu.parts import Request, Row

import search_generation

SIZES = {"teacher": "12x768", "student": "4x312", "length": 128, "batch": 64, "steps": 3, "rounds": 3}
TOY_SIZES = {"teacher": "6x48", "student": "3x24", "length": 8, "batch": 2, "steps": 1, "rounds": 1}


def measure(request: Request) -> Iterator[Row]:
    """Measure it by `search_generation.py`."""
    found = search_generation.measure(Namespace(**(TOY_SIZES if request.dry else SIZES)))
    yield {name: value for name, value in found.items() if name != "machine"}
