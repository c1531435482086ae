"""The tables of a mapping search: its generations as ELM's table 5 has them, and the mappings that did best."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_BEST = 10
_GENERATION_HEADINGS = ("Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping")


def mapping_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: generations, best mappings, notes."""
    parts: list[RenderableType] = [
        Text("Generations", style="bold"),
        _table(_GENERATION_HEADINGS, _generation_rows(record)),
        Text("Best mappings", style="bold"),
        _table(_candidate_headings(record), _candidate_rows(record)[:_BEST]),
    ]
    return Group(*parts, *(Text(note, style="dim") for note in mapping_notes(record)))


def mapping_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: what was searched, the mapping that was found, the tables, notes."""
    best = record["best"]
    parts = [f"# Layer mapping search: {record['name']}", _setting(record)]
    if best is not None:
        scores = ", ".join(f"{name} {score:.2f}" for name, score in best["scores"].items())
        found = f"Found: **{show_mapping(best['mapping'])}**, gene `{best['gene']}`, fitness {best['fitness']:.2f}"
        parts.append(f"{found} ({scores}). `limbeck distill recipe.yaml` trains it.")
    parts += [
        f"## Generations\n\n{_markdown(_GENERATION_HEADINGS, _generation_rows(record))}",
        f"## Best mappings\n\n{_markdown(_candidate_headings(record), _candidate_rows(record)[:_BEST])}",
        "## Notes\n\n" + "\n".join(f"- {note}" for note in mapping_notes(record)),
    ]
    return "\n\n".join(parts) + "\n"


def generations_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every generation, unrounded."""
    names = ("number", "maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene")
    rows = [[*(row[name] for name in names), " ".join(map(str, row["best"]))] for row in record["generations"]]
    return _csv(["generation", *names[1:], "best_mapping"], rows)


def candidates_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every mapping that was evaluated, best first, unrounded."""
    names = ("gene", "fitness", "generation", "training_seconds", "scoring_seconds")
    rows = [
        [
            " ".join(map(str, candidate["mapping"])),
            *(candidate[name] for name in names),
            *(candidate["scores"].get(name) for name in record["scores"]),
        ]
        for candidate in record["candidates"]
    ]
    return _csv(["mapping", *names, *record["scores"]], rows)


def mapping_notes(record: Mapping[str, Any]) -> list[str]:
    """Say what the figures are, what it cost, and what is missing."""
    cost, size = record["cost"], record["space"]["size"]
    seconds = cost["training_seconds"] + cost["scoring_seconds"]
    spent = f"{cost['evaluations']} of {size:,} mappings evaluated" + (
        f" in {_duration(seconds)} of workers' time, {cost['training_seconds'] / seconds:.0%} of it distillation"
        if seconds
        else ""
    )
    notes = [
        f"Fitness is the mean of {', '.join(record['scores'])}, in percent.",
        "A genome that comes twice in a generation counts twice; Evaluated says how many are new. The deviation is "
        "that of the members as they are, divided by their number.",
        f"{spent}.",
    ]
    if legal := [text for what in ("crossing", "mutation") if (text := _draws(record, what))]:
        notes.append(f"Illegal children are drawn again; of the draws {' and '.join(legal)} were legal.")
    if cost["failed"]:
        notes.append(f"Trials that failed or were lost with their worker, and are tried again: {cost['failed']}.")
    given_up = [f"{show_mapping(one['mapping'])} has no fitness: {one['problem']}." for one in record["given_up"]]
    return [*notes, *given_up]


def show_mapping(mapping: Sequence[int]) -> str:
    """Write a mapping as the paper does: `(0, 0, 5, 10)`."""
    return f"({', '.join(map(str, mapping))})"


def _setting(record: Mapping[str, Any]) -> str:
    space = record["space"]
    return (
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), student {record['student']['shape']}, "
        f"{' and '.join(record['methods'])} on {record['share']:.0%} of the corpus; {space['size']:,} mappings of "
        f"{space['student layers']} student layers onto {space['teacher layers']} teacher layers, 0 for none."
    )


def _generation_rows(record: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            f"#{row['number']}",
            *(f"{row[name]:.2f}" for name in ("maximum", "minimum", "mean", "deviation")),
            f"{row['evaluated']} of {row['size']}",
            row["best_gene"],
            show_mapping(row["best"]),
        ]
        for row in record["generations"]
    ]


def _candidate_headings(record: Mapping[str, Any]) -> list[str]:
    return ["Mapping", "Fitness", *record["scores"], "Gen"]


def _candidate_rows(record: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            show_mapping(candidate["mapping"]),
            f"{candidate['fitness']:.2f}",
            *(f"{candidate['scores'][name]:.2f}" for name in record["scores"]),
            "" if candidate["generation"] is None else f"#{candidate['generation']}",
        ]
        for candidate in record["candidates"]
    ]


def _draws(record: Mapping[str, Any], what: str) -> str:
    """How many draws of an operator gave legal children."""
    done = sum(row["breeding"][f"{what}s"] for row in record["generations"])
    drawn = sum(row["breeding"][f"{what}_draws"] for row in record["generations"])
    return f"{done} of {drawn} in {what}" if done else ""


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
    for index, name in enumerate(headings):
        table.add_column(name, justify="left" if _is_text(name) or index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|".join("---" if _is_text(name) or index == 0 else "---:" for index, name in enumerate(headings))
    lines = [f"| {' | '.join(headings)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _is_text(heading: str) -> bool:
    return heading in ("Best gene", "Mapping")


def _csv(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return buffer.getvalue()
