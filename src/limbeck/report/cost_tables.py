"""The tables of what models cost, as MiniLM's table 4 and MLKD-BERT's table 3 have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from limbeck.report.evaluation_grid import NOTHING, PAPER_NAMES

Section = tuple[str, list[str], list[list[str]]]


def cost_sections(costs: Mapping[str, Any]) -> Iterator[Section]:
    """Go through the tables: heading, headings of the columns, rows.

    Args:
        costs: As `limbeck.experiments.plan.measure_costs` gives them.
    """
    lengths = list(costs["models"][0]["megaflops_per_token"])
    flops = [f"Mflop per token, {length} tokens" for length in lengths]
    yield (
        "Size",
        ["", "Shape", "Embedding (M)", "Transformer (M)", "All (M)", "Weights (MB)", *flops],
        [
            [
                model["model"],
                model["shape"],
                *(_millions(model[f"{part}parameters"]) for part in ("embedding_", "transformer_", "")),
                f"{model['megabytes']:.1f}",
                *(f"{model['megaflops_per_token'][length]:.1f}" for length in lengths),
            ]
            for model in costs["models"]
        ],
    )
    device = costs["machine"]["device"]
    yield (
        f"Speed on {device}",
        ["", "Batch", "Tokens", "Median (ms)", "10–90 % (ms)", "Sentences per s", "Tokens per s", "Speedup"],
        [
            [
                row["model"],
                str(row["batch"]),
                str(row["length"]),
                f"{row['median_ms']:.2f}",
                f"{row['p10_ms']:.2f}–{row['p90_ms']:.2f}",
                f"{row['sentences_per_second']:.0f}",
                f"{row['tokens_per_second']:.0f}",
                NOTHING if row["speedup"] is None else f"{row['speedup']:.2f}x",
            ]
            for row in costs["timings"]
        ],
    )
    # Nobody asks what papers measured of the first model's shape alone: the others are compared with it.
    compared = {model["shape"].split(",")[0].split()[-1] for model in costs["models"][1:] or costs["models"]}
    for paper, table, rows in _published(costs["published"]):
        if not any(row["shape"] in compared for row in rows):
            continue
        names = list(rows[0]["values"])
        heading = f"{PAPER_NAMES[paper]}, table {table} ({rows[0]['device']})"
        tasks = [[row["task"] or NOTHING] for row in rows] if any(row["task"] for row in rows) else [[]] * len(rows)
        yield (
            heading,
            ["", *(["Texts of"] if tasks[0] else []), *names],
            [
                [row["shape"], *task, *(f"{row['values'][name]:g}" for name in names)]
                for row, task in zip(rows, tasks, strict=True)
            ],
        )


def cost_tables(costs: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal."""
    parts: list[RenderableType] = []
    for heading, headings, body in cost_sections(costs):
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        for index, name in enumerate(headings):
            # Names may be folded, figures not.
            whole = max(len(row[index]) for row in body) if index > 1 else None
            table.add_column(name, justify="left" if index == 0 else "right", overflow="fold", min_width=whole)
        for row in body:
            table.add_row(*(Text(cell) for cell in row))
        parts += [Text(heading, style="bold"), table]
    return Group(*parts)


def _published(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[Mapping[str, Any]]]]:
    """Gather the rows of each paper's table."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["paper"], row["table"]), []).append(row)
    for (paper, table), found in groups.items():
        yield paper, table, found


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f}"
