"""The records of inspections: a file each, named after the inspection."""

from typing import Any

from limbeck.core.paths import INSPECTION_RECORD
from limbeck.core.records import File

MEAN_HEAD = 0
"""Stands for the mean over all heads where a head is asked for."""


class Inspection(File):
    """A file of `limbeck inspect`; `result` is read by `limbeck.inspection`, whose types write it."""

    FILE = INSPECTION_RECORD

    inspection: str = ""
    result: Any = None
