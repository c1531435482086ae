"""`inspect` a model, alone or beside its teacher, with the options of the commands."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, RenderableType

from limbeck import inspection
from limbeck.api.given import check_models, check_text, refuse_unknown
from limbeck.api.objects import Objects, check_options, listed
from limbeck.api.showing import Shown, chosen_console
from limbeck.core.blocks import Block, Figure, to_csv
from limbeck.core.devices import choose_device
from limbeck.core.lists import parse_list, whole_number
from limbeck.core.progress import ProgressBar, Report, part_of
from limbeck.errors import RecipeError, suggestion
from limbeck.models.families import shape_of
from limbeck.report.output_files import check_output

if TYPE_CHECKING:
    from limbeck.inspection import Subject


@dataclass(frozen=True, repr=False)
class InspectionResult(Shown):
    """What an inspection found.

    Args:
        kind: Of the inspection.
        found: The measured numbers, as plain values.
        files: Data and pictures, where they were asked for.
        table: For a console.
    """

    kind: str
    found: Any
    files: tuple[Path, ...]
    table: RenderableType

    def _blocks(self) -> Iterator[Block]:
        yield from ()

    def _print(self, page: Console) -> None:
        page.print(self.table, highlight=False, markup=False)

    def _figure(self) -> Figure | None:
        from limbeck.report.inspection_figures import inspection_pictures

        return next(iter(inspection_pictures(self.kind, self.found).values()), None)

    def _csv(self) -> str:
        figure = self._figure()
        assert figure is not None
        names = [figure.data.heading(index) for index in range(len(figure.data.headings))]
        rows = ([getattr(cell, "value", cell) for cell in row] for row in figure.data.rows)
        return to_csv(names, (dict(zip(names, row, strict=True)) for row in rows))


class _Asked(NamedTuple):
    """What an inspection reads, and where it reports."""

    load: "Callable[[], list[Subject]]"
    texts: Callable[[int], Sequence[str]]
    length: int
    bar: Report


@refuse_unknown
def inspect(
    kind: str,
    model: Any,
    teacher: Any = None,
    *,
    texts: str | Path | Sequence[str] | None = None,
    count: int | None = None,
    length: int = 128,
    output: str | Path | None = None,
    device: str = "auto",
    console: Console | None = None,
    **options: Any,
) -> InspectionResult:
    """Look inside a model, alone or beside its teacher.

    Args:
        kind: `"phrases"`, `"attention"`, `"similarity"` or `"contribution"`.
        model: A folder, `package:NAME` or a Hub name; a result of `distill`; or a model of transformers or
            sentence-transformers. The student, with a teacher.
        teacher: A second model, put beside it.
        texts: Texts, or a file with one a line; None is sentences that come along.
        count: Texts to read, spread over the file; None is 256 for attention, else 512.
        length: Longest text in tokens.
        output: A folder for picture and data, or one file: .png, .svg, .pdf or .json.
        device: `"auto"`, `"cpu"`, `"cuda"` …
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.
        **options: Those of `limbeck inspect KIND --help`, with `_` for `-`: `data="test.txt"` of phrases, `layers=[3,
            6]` and `heads=["mean", 1]` of attention.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    if kind not in _KINDS:
        raise RecipeError(f"No inspection '{kind}'.{suggestion(str(kind), _KINDS)}")
    run = _KINDS[kind]
    check_options(f"limbeck.inspect('{kind}')", run, options)
    place = None if output is None else Path(output).expanduser()
    check_output(place)

    def read(usual: int) -> Sequence[str]:
        if texts is None or isinstance(texts, str | Path):
            return inspection.read_texts(None if texts is None else Path(texts), count or usual)
        return list(texts)[:count]

    objects = Objects()
    names = [objects.model(each, role) for each, role in ((model, "model"), (teacher, "teacher")) if each is not None]
    check_text(texts)
    check_text(options.get("data"))
    check_models(*names)
    # Torch is imported from here on, which takes seconds.
    from limbeck.core.records import plain
    from limbeck.report.inspection import inspection_table, write_inspection
    from limbeck.report.inspection_figures import inspection_pictures

    chosen = choose_device(device)
    with ProgressBar(chosen_console(console)) as bar:
        asked = _Asked(lambda: [inspection.load_subject(name, device=chosen) for name in names], read, length, bar)
        found = run(asked, **options)
    values, written = plain(found), []
    if place is not None:
        data = {"inspection": kind, "result": values}
        written = write_inspection(place, kind, data, inspection_pictures(kind, values))
    return InspectionResult(kind, values, tuple(written), inspection_table(kind, found))


def _phrases(
    asked: _Asked,
    *,
    data: str | Path,
    spans: int = 3000,
    unlabelled: int = 500,
    clusters: int | None = None,
    held_out: int = 0,
    seeds: int = 3,
    seed: int = 0,
) -> Any:
    sample = inspection.SpanSample(spans, unlabelled, clusters, held_out, seed, tuple(range(seed, seed + seeds)))
    text = inspection.read_chunks(Path(data))
    return inspection.cluster_phrases(asked.load(), text, sample, report=asked.bar)


def _attention(asked: _Asked, *, sentence: str | None = None, layers: Any = None, heads: Any = "mean") -> Any:
    if sentence is not None and not sentence.strip():
        raise RecipeError("--sentence is empty; give it a word, or leave it out for the first text.")
    read, subjects = asked.texts(256), asked.load()
    beside = subjects[1] if len(subjects) > 1 else None
    maps = inspection.draw_maps(
        subjects[0],
        beside,
        sentence if sentence is not None else read[0],
        layers=read_layers(layers, subjects),
        heads_shown=read_heads(heads, subjects),
    )
    far = None
    if beside is not None:
        far = inspection.measure_divergence(subjects[0], beside, read, length=asked.length, report=asked.bar)
    return {"maps": maps, "divergence": far}


def _similarity(asked: _Asked) -> Any:
    read, subjects = asked.texts(512), asked.load()
    return inspection.measure_similarity(subjects[0], subjects[-1], read, length=asked.length, report=asked.bar)


def _contribution(asked: _Asked) -> Any:
    read, subjects = asked.texts(512), asked.load()
    many = len(subjects)
    return [
        inspection.measure_contribution(
            subject, read, length=asked.length, report=part_of(asked.bar, i / many, (i + 1) / many)
        )
        for i, subject in enumerate(subjects)
    ]


_KINDS: dict[str, Callable[..., Any]] = {
    "phrases": _phrases, "attention": _attention, "similarity": _similarity, "contribution": _contribution,
}  # fmt: skip


# The layers and heads of attention maps.


def read_layers(given: Any, subjects: "Sequence[Subject]") -> list[tuple[int, int]]:
    """Read pairs of a student layer and the teacher layer beside it.

    Args:
        given: Numbers in a list or by commas, each alone or with the teacher's in a pair or after a colon, or `all`;
            None is the last layer. A layer alone stands beside that of the uniform mapping.
        subjects: The model, and its teacher if there is one.

    Raises:
        RecipeError: for other text, or a layer that is not there.
    """
    from limbeck.inspection.attention import check_layers
    from limbeck.methods.layer_mapping import uniform

    depth, teacher_depth = subjects[0].layers, subjects[-1].layers
    beside = uniform(depth, teacher_depth)
    pairs = (":".join(map(str, each)) if isinstance(each, tuple | list) else str(each) for each in listed(given))
    text = ",".join(pairs)
    shown = f"--layers '{text[:80]}'"

    def read(part: str) -> list[tuple[int, int]]:
        if part == "all":
            return [(layer, teachers[0]) for layer, teachers in beside.items()]
        student, colon, teacher = part.partition(":")
        layer, other = (whole_number(piece.strip()) for piece in (student, teacher if colon else student))
        if colon and len(subjects) == 1:
            raise RecipeError(f"{shown} names a layer of a teacher; give --teacher too.")
        check_layers(subjects[0], "student" if len(subjects) > 1 else "model", [layer])
        return [(layer, other if colon else beside[layer][0])]

    refusal = f"{shown} must be all, or layers separated by commas, such as 6 or 3:6,6:12."
    return parse_list(str(depth) if given is None else text, read, refusal)


def read_heads(given: Any, subjects: "Sequence[Subject]") -> list[int]:
    """Read the heads: numbers in a list or by commas, `mean`, or `all`.

    Raises:
        RecipeError: for other text.
    """
    text = ",".join(map(str, listed(given)))
    heads = range(1, shape_of(subjects[0].model.config).heads + 1)
    refusal = f"--heads '{text[:80]}' must be mean, all, or numbers from 1, separated by commas."
    named = {"mean": [inspection.MEAN_HEAD], "all": heads}
    return parse_list(text, lambda part: named.get(part) or [whole_number(part, 1)], refusal)
