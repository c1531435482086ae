"""A tiny student to export, saved as any student is."""

from __future__ import annotations

from pathlib import Path

from limbeck.models.sentence_files import write_sentence_transformers_files
from tests.support.models import HIDDEN, make_teacher


def sentence_student(
    parent: Path, family: str = "bert", *, pooling: str = "mean", normalize: bool = True, max_length: int | None = 48
) -> Path:
    """A student that makes sentence vectors."""
    folder = make_teacher(parent, family, layers=2)
    write_sentence_transformers_files(folder, width=HIDDEN, pooling=pooling, normalize=normalize, max_length=max_length)
    return folder
