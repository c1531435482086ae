"""Small files in the layouts of the real data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_table(path: Path, header: Sequence[str] | None, rows: Iterable[Sequence[Any]], bom: bool = False) -> Path:
    """A tab-separated table; without a header where there is None."""
    lines = [] if header is None else ["\t".join(header)]
    lines += ["\t".join(map(str, row)) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig" if bom else "utf-8")
    return path


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """A JSON value a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def question(row_id: str, text: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    return {
        "id": row_id,
        "question": text,
        "answers": [{"text": answer, "answer_start": start} for answer, start in answers],
        **more,
    }


def write_squad(path: Path, *paragraphs: tuple[str, list[dict[str, Any]]]) -> Path:
    """SQuAD's JSON, an article a paragraph."""
    articles = [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]} for context, qas in paragraphs]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


CONTEXT = "The river runs under the old bridge."


def write_small_squad(path: Path) -> Path:
    return write_squad(
        path,
        (CONTEXT, [question("q1", "What runs?", ("The river", 0), ("river", 4)), question("q2", "?", ("old", 25))]),
    )
