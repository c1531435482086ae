"""Protocols: how each paper fine-tunes, as data."""

from limbeck.evaluation.protocols.columns import Column, task_columns
from limbeck.evaluation.protocols.protocol import Protocol
from limbeck.evaluation.protocols.registry import PROTOCOLS
from limbeck.evaluation.protocols.settings import FineTuning

__all__ = ["PROTOCOLS", "Column", "FineTuning", "Protocol", "task_columns"]
