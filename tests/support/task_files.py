"""Small files in the layouts of the real data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.tasks import make_rows


def write_table(path: Path, header: Sequence[str] | None, rows: Iterable[Sequence[Any]]) -> Path:
    """A tab-separated table; without a header where there is None."""
    lines = ["\t".join(map(str, row)) for row in (*([] if header is None else [header]), *rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


RTE = ("not_entailment", "entailment")


def glue_table(rows, labelled=True):
    lines = ["index\tsentence1\tsentence2" + ("\tlabel" if labelled else "")]
    for number, row in enumerate(rows):
        lines.append(f"{number}\t{row.text}\t{row.pair}" + (f"\t{RTE[row.label]}" if labelled else ""))
    return "\n".join(lines) + "\n"


def squad(rows):
    questions = [
        {"context": row.text, "qas": [{"id": row.id, "question": row.pair, "answers": [
            {"text": row.answers[0], "answer_start": row.answer_starts[0]}]}]} for row in rows
    ]  # fmt: skip
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]})


CHUNKS = "the DT B-NP\nmodel NN I-NP\nis VBZ B-VP\non IN B-PP\nit PRP B-NP\n. . O\n\n"


def write_tasks(folder: Path) -> Path:
    """Write RTE and MRPC in GLUE's layout."""
    for task, columns in (("RTE", None), ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String")):
        (folder / task).mkdir(parents=True)
        for split, count, seed in (("train", 16, 0), ("dev", 12, 1)):
            rows = make_rows("classification", count, seed)
            table = glue_table(rows) if columns is None else "\n".join(
                [columns, *(f"{row.label}\t1\t2\t{row.text}\t{row.pair}" for row in rows)]
            ) + "\n"  # fmt: skip
            (folder / task / f"{split}.tsv").write_text(table, encoding="utf-8")
    return folder
