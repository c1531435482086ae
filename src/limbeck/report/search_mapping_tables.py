"""The tables of a mapping search: its generations as ELM's table 5 has them, and the mappings that did best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from limbeck.report.search_grid import SearchGrid, duration, write_csv

_BEST = 10
_GENERATION_HEADINGS = ("Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping")


def mapping_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: generations, best mappings, notes."""
    parts: list[RenderableType] = [
        Text("Generations", style="bold"),
        generations_grid(record).table(),
        Text("Best mappings", style="bold"),
        best_mappings_grid(record).table(),
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
        f"## Generations\n\n{generations_grid(record).markdown()}",
        f"## Best mappings\n\n{best_mappings_grid(record).markdown()}",
        "## Notes\n\n" + "\n".join(f"- {note}" for note in mapping_notes(record)),
    ]
    return "\n\n".join(parts) + "\n"


def generations_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every generation, unrounded."""
    names = ("maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene")
    rows = [
        {**row, "generation": row["number"], "best_mapping": " ".join(map(str, row["best"]))}
        for row in record["generations"]
    ]
    return write_csv(rows, ("generation", *names, "best_mapping"))


def candidates_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every mapping that was evaluated, best first, unrounded."""
    names = ("gene", "fitness", "generation", "training_seconds", "scoring_seconds")
    rows = [
        {**candidate, **candidate["scores"], "mapping": " ".join(map(str, candidate["mapping"]))}
        for candidate in record["candidates"]
    ]
    return write_csv(rows, ("mapping", *names, *record["scores"]))


def generations_grid(record: Mapping[str, Any]) -> SearchGrid:
    """Lay out the generations as ELM's table 5 has them."""
    rows = [
        [
            f"#{row['number']}",
            *(f"{row[name]:.2f}" for name in ("maximum", "minimum", "mean", "deviation")),
            f"{row['evaluated']} of {row['size']}",
            row["best_gene"],
            show_mapping(row["best"]),
        ]
        for row in record["generations"]
    ]
    return SearchGrid(_GENERATION_HEADINGS, rows, words=("Gen", "Best gene", "Mapping"))


def best_mappings_grid(record: Mapping[str, Any]) -> SearchGrid:
    """Lay out the mappings that did best, with every score."""
    rows = [
        [
            show_mapping(candidate["mapping"]),
            f"{candidate['fitness']:.2f}",
            *(f"{candidate['scores'][name]:.2f}" for name in record["scores"]),
            "" if candidate["generation"] is None else f"#{candidate['generation']}",
        ]
        for candidate in record["candidates"][:_BEST]
    ]
    return SearchGrid(["Mapping", "Fitness", *record["scores"], "Gen"], rows, words=("Mapping",))


def mapping_notes(record: Mapping[str, Any]) -> list[str]:
    """Say what the figures are, what it cost, and what is missing."""
    cost, size = record["cost"], record["space"]["size"]
    seconds = cost["training_seconds"] + cost["scoring_seconds"]
    spent = f"{cost['evaluations']} of {size:,} mappings evaluated" + (
        f" in {duration(seconds)} of workers' time, {cost['training_seconds'] / seconds:.0%} of it distillation"
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


def _draws(record: Mapping[str, Any], what: str) -> str:
    """How many draws of an operator gave legal children."""
    done = sum(row["breeding"][f"{what}s"] for row in record["generations"])
    drawn = sum(row["breeding"][f"{what}_draws"] for row in record["generations"])
    return f"{done} of {drawn} in {what}" if done else ""
