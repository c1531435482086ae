"""What a report says of a search that is not finished: how it stands, and what its trials have found so far."""

from __future__ import annotations

import json
from collections.abc import Iterator

from limbeck.report.page.content import NOTHING, Block, Facts, Notes, Table
from limbeck.report.page.findings import Record, SearchFound
from limbeck.report.page.plain_values import entries, mapping, text
from limbeck.report.page.search_figures import distribution_figures, evolution_figure, race_figure, shapes_figure
from limbeck.report.page.search_tables import MOST_SHAPES, search_table
from limbeck.report.search_architecture_tables import front_grid, ranked_shapes, shapes_grid
from limbeck.report.search_grid import shown
from limbeck.report.search_mapping_tables import best_mappings_grid, generations_grid

_LONGEST = 200
_GOES_ON = {
    "mapping": "the same command goes on with it",
    "architecture": "the same command goes on with it",
    "teacher-layer": "the same command starts the training of its candidates again",
}
_HOW = {
    "running": "is still going on",
    "interrupted": "was stopped; {goes_on}",
    "dead": "is not finished, and its workers are gone without a word; {goes_on}",
}


def standing_blocks(found: SearchFound) -> Iterator[Block]:
    """Say that a search is not finished, how it stands, and what its trials can be compared with."""
    kind = text(found.record, "kind")
    lines = [*found.problems]
    if found.record:
        goes_on = _GOES_ON.get(kind, "the same command goes on with it")
        how = _HOW.get(found.status, "is not finished; {goes_on}").format(goes_on=goes_on)
        rest = (
            "What follows is as far as it has come."
            if found.standing
            else "No trials are in its folder: it has none yet, or keeps them in a storage elsewhere (--storage)."
        )
        lines.append(f"The search '{found.title}' ({kind or 'of an unknown kind'}) {how}. {rest}")
    yield Notes(tuple(lines), warning=True)
    if found.standing:
        yield Facts(found.standing)
    if identity := mapping(found.so_far, "identity"):
        rows = tuple((str(name), _brief(value)) for name, value in identity.items())
        yield Table("What it is bound to", ("", "Value"), rows, words=(1,), folded=True)


def course_so_far(found: SearchFound) -> Iterator[Block]:
    """Show what the trials of a search have found, as its report will when it is finished."""
    blocks = {"mapping": _mapping, "architecture": _architecture, "teacher-layer": _teacher_layer}
    show = blocks.get(text(found.record, "kind"))
    if show is not None and found.so_far:
        yield from show(found.so_far)


def _mapping(record: Record) -> Iterator[Block]:
    if not record["generations"]:
        yield Notes(("No mapping has a fitness yet.",))
        return
    yield evolution_figure(record)
    yield from distribution_figures(record)
    yield search_table("Generations so far", generations_grid(record))
    yield search_table("Best mappings so far", best_mappings_grid(record), strong=(0,))


def _architecture(record: Record) -> Iterator[Block]:
    if not record["shapes"]:
        yield Notes(("Of no shape it is known yet what becomes of it.",))
        return
    if record["best"] is not None:
        yield shapes_figure(record)
        yield search_table("Front of loss and latency so far", front_grid(record))
    shapes = ranked_shapes(record)
    left_out, strong = len(shapes) - MOST_SHAPES, () if record["best"] is None else (0,)
    yield search_table("All shapes so far, the best first", shapes_grid(shapes[:MOST_SHAPES]), left_out, strong)


def _teacher_layer(record: Record) -> Iterator[Block]:
    if record["best"] is not None:
        yield race_figure(record, mark="best so far")
    rows = entries(record, "layers")
    steps = sorted({one["step"] for row in rows for one in row["scores"]})
    scores = [{one["step"]: one["score"] for one in row["scores"]} for row in rows]
    cells = (
        (str(row["layer"]), *(shown(found.get(step), 2) for step in steps), row["state"])
        for row, found in zip(rows, scores, strict=True)
    )
    headings = ("Layer", *(f"Step {step}" for step in steps), "Trial")
    strong = () if record["best"] is None else (0,)
    yield Table("Layers so far, the best first", headings, tuple(cells), words=(len(headings) - 1,), strong=strong)


def _brief(value: object) -> str:
    if value is None:
        return NOTHING
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return written if len(written) <= _LONGEST else f"{written[: _LONGEST - 1]}…"
