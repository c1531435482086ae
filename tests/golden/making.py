"""Folders of every kind, made by the command line as a user makes them, on tiny models."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

from tests.support.commands import call, write_documents
from tests.support.comparisons import write_teacher
from tests.support.corpora import write_text
from tests.support.task_files import CHUNKS, write_tasks

MAKING = Path(__file__).with_suffix(".yaml")
OF_A_RUN = ("evaluation", "export", "inspection")
KINDS = ("run", "comparison", "search-mapping", "search-architecture", "search-teacher-layer", *OF_A_RUN)


class Made:
    """Makes each kind of folder when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = write_documents(MAKING, folder)
        write_teacher(folder).rename(folder / "teacher")
        write_text(folder / "text", 40)
        write_tasks(folder / "tasks")
        texts = "The teacher shows the student a layer.\nIt is a model of text.\n" * 8
        (folder / "texts.txt").write_text(texts, encoding="utf-8")
        (folder / "chunks.txt").write_text(CHUNKS * 10, encoding="utf-8")

    def __getitem__(self, kind: str) -> Path:
        if kind in OF_A_RUN:
            _ = self["run"]
        with chdir(self._folder):
            for arguments in self._calls.pop(kind, ()):
                assert call(*arguments, "--quiet") == 0, arguments
        return self._folder / kind
