"""The tables of a search of shapes: the front of loss and latency, and every shape that was tried."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

# Plain grids of a search: headings and cells, for the terminal, as Markdown and as CSV.


NOTHING = "–"


@dataclass(frozen=True)
class SearchGrid:
    """A table of text cells.

    Args:
        headings: One a column.
        rows: As many cells each.
        words: Headings of columns that hold words; the others hold numbers and are aligned to the right.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str]

    def table(self) -> Table:
        """Return it for the terminal."""
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        for heading in self.headings:
            table.add_column(heading, justify="left" if heading in self.words else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """Return it in Markdown."""
        rule = "|".join("---" if heading in self.words else "---:" for heading in self.headings)
        rows = [" | ".join(cell.replace("|", r"\|") for cell in row) for row in (self.headings, *self.rows)]
        return "\n".join([f"| {rows[0]} |", f"|{rule}|", *(f"| {row} |" for row in rows[1:])])


def write_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV with unrounded numbers; what is unknown is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def shown(value: float | None, digits: int) -> str:
    """Write a number with so many decimals, and nothing as a dash."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def duration(seconds: float) -> str:
    """Write a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


_MOST_SHOWN = 20
_FRONT_HEADINGS = ("Shape", "Parameters", "Latency ms", "Of teacher", "Loss", "Reward")
_ALL_HEADINGS = ("Trial", "Shape", "Parameters", "Of teacher", "Loss", "Reward", "State")
_WORDS = ("Shape", "State")
_LOSSES = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's does not explain",
    "relations": "the divergence of the last layers' query, key and value relations",
}
_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)


def architecture_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: the front, the best of all shapes, notes."""
    ranked = ranked_shapes(record)
    parts: list[RenderableType] = [
        Text(_found_shapes(record).replace("**", ""), style="bold"),
        Text("Front of loss and latency"),
        front_grid(record).table(),
        Text(f"Shapes, the best {_MOST_SHOWN} of {len(ranked)}" if len(ranked) > _MOST_SHOWN else "Shapes"),
        shapes_grid(ranked[:_MOST_SHOWN]).table(),
    ]
    return Group(*parts, *(Text(note, style="dim") for note in architecture_notes(record)))


def architecture_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: what was searched, the shape that was found, the tables, notes."""
    parts = [
        f"# Search of student shapes: {record['name']}",
        _shape_setting(record),
        f"{_found_shapes(record)} `limbeck distill recipe.yaml` trains it.",
        f"## Front of loss and latency\n\n{front_grid(record).markdown()}",
        f"## All shapes\n\n{shapes_grid(ranked_shapes(record)).markdown()}",
        "## Notes\n\n" + "\n".join(f"- {note}" for note in architecture_notes(record)),
    ]
    return "\n\n".join(parts) + "\n"


def shapes_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every shape that was tried, in the order of the trials."""
    rows = [{**shape, "front": shape["trial"] in record["front"]} for shape in record["shapes"]]
    return write_csv(rows, _COLUMNS)


def architecture_notes(record: Mapping[str, Any]) -> list[str]:
    """Say what the figures are, what it cost, and what became of shapes that were not trained to the end."""
    cost, latency, limits = record["cost"], record["latency"], record["limits"]
    notes = [
        f"Loss is {_LOSSES[record['loss']['kind']]}, on held-out text, divided by that of an untrained student "
        f"({record['loss']['untrained']:.4f}); reward is (1 - loss) x (share of latency / 0.6)^-0.06.",
        f"Latency: {latency['batch']} x {latency['length']} tokens, {latency['dtype']}, on {latency['device']}, "
        "teacher and student in turns, the least disturbed pass of each; the teacher takes "
        f"{record['teacher']['latency_ms']:.1f} ms. Parameters are the encoder's, without pooler and head.",
    ]
    noted = Counter(shape["note"] for shape in record["shapes"] if shape["note"] is not None)
    notes += [
        f"Latency of {count} of {len(record['shapes'])} shapes: {note}, so it is of processor times; measure on an "
        "idle machine for those of a clock."
        for note, count in noted.items()
    ]
    asked = [
        *([] if limits["parameters"] is None else [f"{limits['parameters']:,} parameters"]),
        *([] if limits["latency_share"] is None else [f"{limits['latency_share']:g} of the teacher's latency"]),
    ]
    if asked:
        notes.append(f"Limits: {' and '.join(asked)}. A shape beyond them cost no training.")
    others = [f"{cost[state]} {state}" for state in ("cut", "diverged", "refused") if cost[state]]
    time = f" in {duration(cost['training_seconds'])} of workers' time" if cost["training_seconds"] else ""
    aside = f"; {', '.join(others)}" if others else ""
    notes.append(f"{cost['trained']} of {record['space']['shapes']:,} shapes trained to the end{aside}{time}.")
    if cost["failed"]:
        notes.append(f"{cost['failed']} trials failed or were lost with their worker; their shapes were tried again.")
    return notes


def describe_shape(shape: Mapping[str, Any]) -> str:
    """Write a shape as the student's blueprint is written."""
    return f"{shape['layers']}x{shape['hidden']}, {shape['heads']} heads, FFN {shape['ffn']}"


def ranked_shapes(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Trained shapes by reward, then those that were cut, diverged or refused, by trial."""
    order = ("trained", "cut", "diverged", "refused")
    return sorted(
        record["shapes"], key=lambda shape: (order.index(shape["state"]), -(shape["reward"] or 0.0), shape["trial"])
    )


def _found_shapes(record: Mapping[str, Any]) -> str:
    best = record["best"]
    return (
        f"Found: **{describe_shape(best)}**, {best['parameters']:,} parameters, {best['latency_share']:.3f} of the "
        f"teacher's latency, loss {best['loss']:.4f}, reward {best['reward']:.4f}."
    )


def _shape_setting(record: Mapping[str, Any]) -> str:
    space = record["space"]
    sizes = ", ".join(
        f"{name} {' / '.join(f'{value:g}' for value in space[name])}" for name in ("layers", "hidden", "heads", "ffn")
    )
    return (
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), {' and '.join(record['methods'])} on "
        f"{record['share']:.0%} of the corpus; {sizes} (FFN in multiples of hidden), sampler {record['sampler']}."
    )


def front_grid(record: Mapping[str, Any]) -> SearchGrid:
    """Lay out the shapes that no other beats in both loss and latency, the fastest first."""
    by_trial = {shape["trial"]: shape for shape in record["shapes"]}
    rows = [
        [
            describe_shape(shape),
            shown(shape["parameters"], 0),
            shown(shape["latency_ms"], 2),
            shown(shape["latency_share"], 3),
            shown(shape["loss"], 4),
            shown(shape["reward"], 4),
        ]
        for shape in map(by_trial.__getitem__, record["front"])
    ]
    return SearchGrid(_FRONT_HEADINGS, rows, _WORDS)


def shapes_grid(shapes: Sequence[Mapping[str, Any]]) -> SearchGrid:
    """Lay out shapes with what became of them."""
    rows = [
        [
            str(shape["trial"]),
            describe_shape(shape),
            shown(shape["parameters"], 0),
            shown(shape["latency_share"], 3),
            shown(shape["loss"], 4),
            shown(shape["reward"], 4),
            shape["state"] if shape["reason"] is None else f"{shape['state']}: {shape['reason']}",
        ]
        for shape in shapes
    ]
    return SearchGrid(_ALL_HEADINGS, rows, _WORDS)


# The tables of a mapping search: its generations as ELM's table 5 has them, and the mappings that did best.


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
    parts = [f"# Layer mapping search: {record['name']}", _mapping_setting(record)]
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


def _mapping_setting(record: Mapping[str, Any]) -> str:
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


# The tables of a search of teacher layers: every candidate with its score at each rung.


_ENDS = {"cut": "after {}", "trained": NOTHING, "diverged": "diverged"}


def teacher_layer_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the table for the terminal, with what was found above it and notes below."""
    found = Text(_found_layer(record).replace("**", ""), style="bold")
    notes = [Text(note, style="dim") for note in teacher_layer_notes(record)]
    return Group(found, layers_grid(record).table(), *notes)


def teacher_layer_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: what was searched, the layer that was found, the table, notes."""
    parts = [
        f"# Search of teacher layers: {record['name']}",
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), student {record['student']['shape']}, "
        f"{' and '.join(record['methods'])} on {record['share']:.0%} of the corpus.",
        f"{_found_layer(record)} `limbeck distill recipe.yaml` trains it.",
        f"## Layers\n\n{layers_grid(record).markdown()}",
        "## Notes\n\n" + "\n".join(f"- {note}" for note in teacher_layer_notes(record)),
    ]
    return "\n\n".join(parts) + "\n"


def layers_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every score of every layer, the best layer first, unrounded."""
    columns = ("rank", "layer", "step", "score", *record["scores"], "steps", "state", "own_loss")
    rows = [{**row, **scored} for row in record["layers"] for scored in row["scores"] or [{}]]
    return write_csv(rows, columns)


def teacher_layer_notes(record: Mapping[str, Any]) -> list[str]:
    """Say what the scores are, who was dropped when, and what it cost."""
    cost = record["cost"]
    notes = [
        f"Score is the mean of {' and '.join(record['scores'])}, in percent, on held-out text: how the student orders "
        "sentence pairs as its teacher does, and how much of the teacher's last hidden states a linear map of its own "
        "explains. Own loss is each student's own, and comparable between no two layers.",
        f"All candidates were trained at once: {cost['steps']:,} steps in all, in {duration(cost['seconds'])}, and the "
        "teacher ran once a step for all of them.",
    ]
    if len(record["rungs"]) > 1:
        rounds = ", ".join(f"{rung['candidates']} to step {rung['end']}" for rung in record["rungs"])
        notes.append(f"Successive halving: {rounds}. Who was dropped earlier ranks lower.")
    return notes


def _found_layer(record: Mapping[str, Any]) -> str:
    best = record["best"]
    last = best["scores"][-1]
    return (
        f"Recommended: teacher layer **{best['layer']}** of {record['teacher']['layers']}, score {last['score']:.2f} "
        f"after {last['step']} steps."
    )


def layers_grid(record: Mapping[str, Any]) -> SearchGrid:
    """Lay out every layer with its score at each rung."""
    steps = sorted({scored["step"] for row in record["layers"] for scored in row["scores"]})
    headings = ["Rank", "Layer", *(f"Step {step}" for step in steps), *record["scores"], "Own loss", "Dropped"]
    rows = []
    for row in record["layers"]:
        by_step = {scored["step"]: scored for scored in row["scores"]}
        last = row["scores"][-1] if row["scores"] else {}
        rows.append(
            [
                str(row["rank"]),
                str(row["layer"]),
                *(shown(by_step.get(step, {}).get("score"), 2) for step in steps),
                *(shown(last.get(name), 2) for name in record["scores"]),
                shown(row["own_loss"], 4),
                _ENDS[row["state"]].format(row["steps"]),
            ]
        )
    return SearchGrid(headings, rows, words=("Dropped",))
