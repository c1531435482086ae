"""Tables of searches of layer mappings, student shapes and teacher layers: for reports, the terminal and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType

from limbeck.core import blocks
from limbeck.core.markdown import markdown_file
from limbeck.report.findings import Record
from limbeck.report.records import describe_shape

# Layer mappings: the generations as ELM's table 5 has them, and the best mappings.

_BEST_MAPPINGS = 10


def _mapping_setting(record: Record) -> str:
    space = record["space"]
    return (
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), student {record['student']['shape']}, "
        f"{' and '.join(record['methods'])} on {record['share']:.0%} of the corpus; {space['size']:,} mappings of "
        f"{space['student layers']} student layers onto {space['teacher layers']} teacher layers, 0 for none."
    )


def _found_mapping(record: Record) -> str:
    best = record["best"]
    if best is None:
        return ""
    scores = ", ".join(f"{name} {score:.2f}" for name, score in best["scores"].items())
    found = f"**{show_mapping(best['mapping'])}**, gene `{best['gene']}`, fitness {best['fitness']:.2f}"
    return f"Found: {found} ({scores})."


def generations(record: Record) -> blocks.Table:
    """Lay out the generations as ELM's table 5 has them."""
    rows = tuple(
        (
            f"#{row['number']}",
            *(blocks.number(row[name], 2) for name in ("maximum", "minimum", "mean", "deviation")),
            f"{row['evaluated']} of {row['size']}",
            row["best_gene"],
            show_mapping(row["best"]),
        )
        for row in record["generations"]
    )
    headings = ("Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping")
    return blocks.Table("Generations", headings, rows, words=(0, 6, 7))


def best_mappings(record: Record) -> blocks.Table:
    """Lay out the mappings that did best, with every score."""
    rows: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
        (
            show_mapping(candidate["mapping"]),
            blocks.number(candidate["fitness"], 2),
            *(blocks.number(candidate["scores"][name], 2) for name in record["scores"]),
            "" if candidate["generation"] is None else f"#{candidate['generation']}",
        )
        for candidate in record["candidates"][:_BEST_MAPPINGS]
    )
    return blocks.Table("Best mappings", ("Mapping", "Fitness", *record["scores"], "Gen"), rows, words=(0,))


def _mapping_notes(record: Record) -> Iterator[str]:
    """Describe the figures, the cost, and the mappings without a fitness."""
    cost, size = record["cost"], record["space"]["size"]
    seconds = cost["training_seconds"] + cost["scoring_seconds"]
    yield f"Fitness is the mean of {', '.join(record['scores'])}, in percent."
    yield (
        "A genome that comes twice in a generation counts twice; Evaluated says how many are new. The deviation is "
        "that of the members as they are, divided by their number."
    )
    share = f"{cost['training_seconds'] / seconds:.0%} of it distillation" if seconds else ""
    spent = f" in {blocks.duration(seconds)} of workers' time, {share}" if seconds else ""
    yield f"{cost['evaluations']} of {size:,} mappings evaluated{spent}."
    if legal := [text for operator in ("crossing", "mutation") if (text := _draws(record, operator))]:
        yield f"Illegal children are drawn again; of the draws {' and '.join(legal)} were legal."
    if cost["failed"]:
        yield f"Trials that failed or were lost with their worker, and are tried again: {cost['failed']}."
    for one in record["given_up"]:
        yield f"{show_mapping(one['mapping'])} has no fitness: {one['problem']}."


def _draws(record: Record, operator: str) -> str:
    """Count the draws of an operator that gave legal children."""
    done = sum(row["breeding"][f"{operator}s"] for row in record["generations"])
    drawn = sum(row["breeding"][f"{operator}_draws"] for row in record["generations"])
    return f"{done} of {drawn} in {operator}" if done else ""


def show_mapping(mapping: Sequence[int]) -> str:
    """Write a mapping as the paper does: `(0, 0, 5, 10)`."""
    return f"({', '.join(map(str, mapping))})"


def _generations_csv(record: Record) -> str:
    names = ("maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene")
    rows = (
        {**row, "generation": row["number"], "best_mapping": " ".join(map(str, row["best"]))}
        for row in record["generations"]
    )
    return blocks.to_csv(("generation", *names, "best_mapping"), rows)


def _candidates_csv(record: Record) -> str:
    names = ("gene", "fitness", "generation", "training_seconds", "scoring_seconds")
    rows = (
        {**candidate, **candidate["scores"], "mapping": " ".join(map(str, candidate["mapping"]))}
        for candidate in record["candidates"]
    )
    return blocks.to_csv(("mapping", *names, *record["scores"]), rows)


# Student shapes: the front of loss and latency, and every shape that was tried.

_SHAPES_ON_CONSOLE = 20
_LOSSES = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's does not explain",
    "relations": "the divergence of the last layers' query, key and value relations",
}
_SHAPE_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)


def _shape_setting(record: Record) -> str:
    space = record["space"]
    sizes = ", ".join(
        f"{name} {' / '.join(f'{value:g}' for value in space[name])}" for name in ("layers", "hidden", "heads", "ffn")
    )
    return (
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), {' and '.join(record['methods'])} on "
        f"{record['share']:.0%} of the corpus; {sizes} (FFN in multiples of hidden), sampler {record['sampler']}."
    )


def _found_shape(record: Record) -> str:
    best = record["best"]
    return (
        f"Found: **{describe_shape(best)}**, {best['parameters']:,} parameters, {best['latency_share']:.3f} of the "
        f"teacher's latency, loss {best['loss']:.4f}, reward {best['reward']:.4f}."
    )


def front(record: Record) -> blocks.Table:
    """Lay out the shapes that no other beats in both loss and latency, the fastest first."""
    by_trial = {shape["trial"]: shape for shape in record["shapes"]}
    rows: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
        (
            describe_shape(shape),
            blocks.number(shape["parameters"]),
            blocks.number(shape["latency_ms"], 2),
            *_shape_figures(shape),
        )
        for shape in map(by_trial.__getitem__, record["front"])
    )
    headings = ("Shape", "Parameters", "Latency ms", "Of teacher", "Loss", "Reward")
    return blocks.Table("Front of loss and latency", headings, rows, words=(0,))


def shapes(record: Record, most: int | None = None) -> blocks.Table:
    """Lay out trained shapes by reward, then those that were cut, diverged or refused, by trial."""
    order = ("trained", "cut", "diverged", "refused")
    ranked = sorted(
        record["shapes"], key=lambda shape: (order.index(shape["state"]), -(shape["reward"] or 0.0), shape["trial"])
    )
    rows: tuple[tuple[blocks.AnyCell, ...], ...] = tuple(
        (
            str(shape["trial"]),
            describe_shape(shape),
            blocks.number(shape["parameters"]),
            *_shape_figures(shape),
            shape["state"] if shape["reason"] is None else f"{shape['state']}: {shape['reason']}",
        )
        for shape in ranked[:most]
    )
    headings = ("Trial", "Shape", "Parameters", "Of teacher", "Loss", "Reward", "State")
    return blocks.Table("Shapes", headings, rows, words=(1, 6), left_out=len(ranked) - len(rows))


def _shape_figures(shape: Record) -> tuple[blocks.Cell, ...]:
    return blocks.number(shape["latency_share"], 3), blocks.number(shape["loss"], 4), blocks.number(shape["reward"], 4)


def _shape_notes(record: Record) -> Iterator[str]:
    """Describe the figures, the cost, and the shapes that were not trained to the end."""
    cost, latency, limits = record["cost"], record["latency"], record["limits"]
    yield (
        f"Loss is {_LOSSES[record['loss']['kind']]}, on held-out text, divided by that of an untrained student "
        f"({record['loss']['untrained']:.4f}); reward is (1 - loss) x (share of latency / 0.6)^-0.06."
    )
    yield (
        f"Latency: {latency['batch']} x {latency['length']} tokens, {latency['dtype']}, on {latency['device']}, "
        "teacher and student in turns, the least disturbed pass of each; the teacher takes "
        f"{record['teacher']['latency_ms']:.1f} ms. Parameters are the encoder's, without pooler and head."
    )
    for note, count in Counter(shape["note"] for shape in record["shapes"] if shape["note"] is not None).items():
        yield (
            f"Latency of {count} of {len(record['shapes'])} shapes: {note}, so it is of processor times; measure on an "
            "idle machine for those of a clock."
        )
    asked = [
        *([] if limits["parameters"] is None else [f"{limits['parameters']:,} parameters"]),
        *([] if limits["latency_share"] is None else [f"{limits['latency_share']:g} of the teacher's latency"]),
    ]
    if asked:
        yield f"Limits: {' and '.join(asked)}. A shape beyond them cost no training."
    others = [f"{cost[state]} {state}" for state in ("cut", "diverged", "refused") if cost[state]]
    time = f" in {blocks.duration(cost['training_seconds'])} of workers' time" if cost["training_seconds"] else ""
    aside = f"; {', '.join(others)}" if others else ""
    yield f"{cost['trained']} of {record['space']['shapes']:,} shapes trained to the end{aside}{time}."
    if cost["failed"]:
        yield f"{cost['failed']} trials failed or were lost with their worker; their shapes were tried again."


def _shapes_csv(record: Record) -> str:
    rows = ({**shape, "front": shape["trial"] in record["front"]} for shape in record["shapes"])
    return blocks.to_csv(_SHAPE_COLUMNS, rows)


# Teacher layers: every candidate with its score at each rung.

_ENDS = {"cut": "after {}", "trained": blocks.NOTHING, "diverged": "diverged"}


def _layer_setting(record: Record) -> str:
    return (
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), student {record['student']['shape']}, "
        f"{' and '.join(record['methods'])} on {record['share']:.0%} of the corpus."
    )


def _found_layer(record: Record) -> str:
    best = record["best"]
    last = best["scores"][-1]
    return (
        f"Recommended: teacher layer **{best['layer']}** of {record['teacher']['layers']}, score {last['score']:.2f} "
        f"after {last['step']} steps."
    )


def layers(record: Record) -> blocks.Table:
    """Lay out every layer with its score at each rung; before the end of the search with the state of its trial."""
    steps = sorted({scored["step"] for row in record["layers"] for scored in row["scores"]})
    rows: list[tuple[str | blocks.Cell, ...]] = []
    finished = all("rank" in row for row in record["layers"])
    for row in record["layers"]:
        by_step = {scored["step"]: scored["score"] for scored in row["scores"]}
        scores = (blocks.number(by_step.get(step), 2) for step in steps)
        if not finished:
            rows.append((str(row["layer"]), *scores, row["state"]))
            continue
        last = row["scores"][-1] if row["scores"] else {}
        each = (blocks.number(last.get(name), 2) for name in record["scores"])
        end = _ENDS[row["state"]].format(row["steps"])
        rows.append((str(row["rank"]), str(row["layer"]), *scores, *each, blocks.number(row["own_loss"], 4), end))
    headings = ["Layer", *(f"Step {step}" for step in steps), "Trial"]
    if finished:
        headings = ["Rank", *headings[:-1], *record["scores"], "Own loss", "Dropped"]
    return blocks.Table("Layers", tuple(headings), tuple(rows), words=(len(headings) - 1,))


def _layer_notes(record: Record) -> Iterator[str]:
    """Describe the scores, the layers that were dropped, and the cost."""
    cost = record["cost"]
    yield (
        f"Score is the mean of {' and '.join(record['scores'])}, in percent, on held-out text: how the student orders "
        "sentence pairs as its teacher does, and how much of the teacher's last hidden states a linear map of its own "
        "explains. Own loss is each student's own, and comparable between no two layers."
    )
    yield (
        f"All candidates were trained at once: {cost['steps']:,} steps in all, in {blocks.duration(cost['seconds'])}, "
        "and the teacher ran once a step for all of them."
    )
    if len(record["rungs"]) > 1:
        rounds = ", ".join(f"{rung['candidates']} to step {rung['end']}" for rung in record["rungs"])
        yield f"Successive halving: {rounds}. Who was dropped earlier ranks lower."


def _layers_csv(record: Record) -> str:
    columns = ("rank", "layer", "step", "score", *record["scores"], "steps", "state", "own_loss")
    return blocks.to_csv(columns, ({**row, **scored} for row in record["layers"] for scored in row["scores"] or [{}]))


@dataclass(frozen=True)
class SearchKind:
    """A kind of search.

    Attributes:
        title: Of its file.
        setting: What was searched, in a line.
        found: The result in a line; empty for none.
        tables: For its file, each with its heading.
        shown: The lines and tables for a console.
        notes: Below the tables.
        files: Tables of unrounded numbers.
        best: The result in a few words.
    """

    title: str
    setting: Callable[[Record], str]
    found: Callable[[Record], str]
    tables: Callable[[Record], Sequence[tuple[str, blocks.Table]]]
    shown: Callable[[Record], Sequence[blocks.Block]]
    notes: Callable[[Record], Iterator[str]]
    files: Mapping[str, Callable[[Record], str]]
    best: Callable[[Record], str]


KINDS = {
    "mapping": SearchKind(
        "Layer mapping search",
        _mapping_setting,
        _found_mapping,
        lambda record: [("Generations", generations(record)), ("Best mappings", best_mappings(record))],
        lambda record: [generations(record), best_mappings(record)],
        _mapping_notes,
        {"generations.csv": _generations_csv, "candidates.csv": _candidates_csv},
        lambda best: f"mapping {show_mapping(best['mapping'])}, fitness {best['fitness']:.2f}",
    ),
    "architecture": SearchKind(
        "Search of student shapes",
        _shape_setting,
        _found_shape,
        lambda record: [("Front of loss and latency", front(record)), ("All shapes", shapes(record))],
        lambda record: [blocks.Paragraph(_found_shape(record)), front(record), _shapes_shown(record)],
        _shape_notes,
        {"shapes.csv": _shapes_csv},
        lambda best: f"{describe_shape(best)}, {best['latency_share']:.3f} of the latency, loss {best['loss']:.4f}",
    ),
    "teacher-layer": SearchKind(
        "Search of teacher layers",
        _layer_setting,
        _found_layer,
        lambda record: [("Layers", layers(record))],
        lambda record: [blocks.Paragraph(_found_layer(record)), replace(layers(record), caption="")],
        _layer_notes,
        {"layers.csv": _layers_csv},
        lambda best: f"layer {best['layer']}, score {best['scores'][-1]['score']:.2f}",
    ),
}


def _shapes_shown(record: Record) -> blocks.Table:
    table = shapes(record, _SHAPES_ON_CONSOLE)
    some = f", the best {len(table.rows)} of {len(record['shapes'])}" if table.left_out else ""
    return replace(table, caption=f"Shapes{some}", left_out=0)


def search_table(record: Record) -> RenderableType:
    """Return the tables of a finished search for the terminal."""
    kind = KINDS[record["kind"]]
    return blocks.console(*kind.shown(record), blocks.Notes(tuple(kind.notes(record))))


def search_files(record: Record) -> dict[str, str]:
    """Return the tables of a finished search, by the names of their files."""
    kind = KINDS[record["kind"]]
    found = kind.found(record)
    setting = [blocks.Paragraph(kind.setting(record))]
    setting += [blocks.Paragraph(f"{found} `limbeck distill recipe.yaml` trains it.")] if found else []
    sections = [
        blocks.Section("", tuple(setting)),
        *(blocks.Section(title, (table,)) for title, table in kind.tables(record)),
        blocks.Section("Notes", (blocks.Notes(tuple(kind.notes(record))),)),
    ]
    tables = {name: write(record) for name, write in kind.files.items()}
    return {"search.md": markdown_file(f"{kind.title}: {record['name']}", sections), **tables}
