"""Where tables and cards are made of records: the one place in the golden tests that names modules below a package.

When a table moves, its import is changed here; no snapshot is.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console, RenderableType

from limbeck.inspection import AttentionDivergence, Contribution, LayerSimilarity, PhraseClustering
from tests.golden.committed import FOLDERS


def read(folder: str, name: str) -> dict[str, Any]:
    """Read a committed record."""
    return json.loads((FOLDERS[folder] / name).read_text(encoding="utf-8"))


def console_text(table: RenderableType, width: int) -> str:
    """Return a table as a terminal of a width shows it, without colours."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def run_tables(folder: str) -> tuple[dict[str, RenderableType], dict[str, str]]:
    """The table of teacher and student."""
    from limbeck.report.quality import comparison_csv, comparison_markdown, comparison_table

    record = read(folder, "run.json")["evaluation"]
    return (
        {"table": comparison_table(record)},
        {"evaluation.md": comparison_markdown(record), "evaluation.csv": comparison_csv(record)},
    )


def evaluation_tables(folder: str) -> tuple[dict[str, RenderableType], dict[str, str]]:
    """The tables of scores and costs."""
    from limbeck.report.evaluation import costs_table, evaluation_csv, evaluation_markdown, evaluation_table

    summary = read(folder, "evaluation_table.json")
    costs = summary.get("costs")
    shown = {"table": evaluation_table(summary)}
    if costs is not None:
        shown["costs"] = costs_table(costs)
    return shown, {
        "evaluation_table.md": evaluation_markdown(summary, costs),
        "evaluation_table.csv": evaluation_csv(summary),
    }


def comparison_tables(folder: str) -> tuple[dict[str, RenderableType], dict[str, str]]:
    """The table of methods."""
    from limbeck.report.comparison import methods_csv, methods_markdown, methods_table

    record = read(folder, "comparison.json")
    return (
        {"table": methods_table(record)},
        {"comparison_table.md": methods_markdown(record), "comparison_table.csv": methods_csv(record)},
    )


def search_tables(folder: str) -> tuple[dict[str, RenderableType], dict[str, str]]:
    """The tables of a search."""
    from limbeck.report.search import search_files, search_table

    record = read(folder, "search.json")
    return {"table": search_table(record)}, search_files(record)


def inspection_tables(folder: str) -> tuple[dict[str, RenderableType], dict[str, str]]:
    """The tables of the inspections, from the files that they wrote."""
    from limbeck.report.inspection import contribution_table, divergence_table, phrase_table, similarity_table

    def found(kind: Any, name: str) -> Any:
        return TypeAdapter(kind).validate_python(read(folder, f"{name}.json")["result"])

    divergence = read(folder, "attention.json")["result"]["divergence"]
    shown = {
        "phrases": phrase_table(found(PhraseClustering, "phrases")),
        "divergence": divergence_table(TypeAdapter(AttentionDivergence).validate_python(divergence)),
        "similarity": similarity_table(found(LayerSimilarity, "similarity")),
        "contribution": contribution_table(found(list[Contribution], "contribution")),
    }
    return shown, {}


def export_tables(folder: str) -> tuple[dict[str, RenderableType], dict[str, str]]:
    """The lines and latencies of an export."""
    from limbeck.report.card_parts import export_lines, export_title, latency_table

    record = read(folder, "export.json")
    said = "\n".join((export_title(record), *export_lines(record)))
    return {"latencies": latency_table(record)}, {"lines.txt": f"{said}\n"}


def run_card(folder: Path, record: dict[str, Any], export: dict[str, Any] | None = None) -> str:
    """The model card of a student, or of its export."""
    from limbeck.report import write_model_card

    return write_model_card(record, folder, export=export).read_text(encoding="utf-8")


TABLES = {
    **dict.fromkeys(("finished", "large-run"), run_tables),
    **dict.fromkeys(("evaluation", "evaluation-with-costs", "large-evaluation"), evaluation_tables),
    **dict.fromkeys(("comparison", "comparison-with-costs", "large-comparison"), comparison_tables),
    **dict.fromkeys(("search-mapping", "search-architecture", "search-teacher-layer"), search_tables),
    **dict.fromkeys(("large-search-mapping", "large-search-architecture", "large-search-teacher-layer"), search_tables),
    "inspections": inspection_tables,
    "export-onnx-int8": export_tables,
}
