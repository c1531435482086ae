"""`limbeck inspect`: what a model looks like inside, alone or beside its teacher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import LAST_SEED, MOST, RESULT_PANEL, Device, Json, Quiet, Verbose, examples
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limbeck.inspection import Subject


_TEXT_PANEL = "The text"
_CLUSTER_PANEL = "Spans and clusters"

Model = Annotated[str, typer.Argument(help="A folder, package:NAME, or a Hub name; the student, with --teacher.")]
Teacher = Annotated[str | None, typer.Option(help="A second model, to be put beside it.")]
Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        "--text",
        help="A file with a text a line; default: sentences that come along.",
        rich_help_panel=_TEXT_PANEL,
    ),
]
Count = Annotated[
    int,
    typer.Option("--count", min=1, max=MOST, help="Texts to read, spread over the file.", rich_help_panel=_TEXT_PANEL),
]
Length = Annotated[
    int,
    typer.Option(min=2, max=MOST, help="Longest text in tokens; what is longer is cut.", rich_help_panel=_TEXT_PANEL),
]
Output = Annotated[
    Path | None,
    typer.Option(
        help="A folder for picture and data, or one file: .png, .svg, .pdf (picture) or .json (data).",
        rich_help_panel=RESULT_PANEL,
    ),
]

inspect = typer.Typer(
    name="inspect",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look inside a model, alone or beside its teacher: numbers, and pictures of them.",
    epilog=examples(
        "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --output look/"
    ),
)


@inspect.command(
    epilog=examples(
        "limbeck inspect phrases runs/mine/student --teacher google-bert/bert-base-uncased --data conll2000/test.txt "
        "--output look/"
    )
)
def phrases(
    model: Model,
    data: Annotated[Path, typer.Option(help="Chunked text in the CoNLL-2000 format: word, part of speech, tag.")],
    teacher: Teacher = None,
    spans: Annotated[int, typer.Option(min=1, max=MOST, help="Chunks to draw.", rich_help_panel=_CLUSTER_PANEL)] = 3000,
    unlabelled: Annotated[
        int,
        typer.Option(
            min=0, max=MOST, help="Spans between chunks to draw, as one more label.", rich_help_panel=_CLUSTER_PANEL
        ),
    ] = 500,
    clusters: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=MOST,
            help="Clusters of k-means; default: as many as labels.",
            show_default=False,
            rich_help_panel=_CLUSTER_PANEL,
        ),
    ] = None,
    held_out: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="Score this many spans that are not clustered; 0: those that are.",
            rich_help_panel=_CLUSTER_PANEL,
        ),
    ] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of k-means.", rich_help_panel=_CLUSTER_PANEL)] = 3,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=LAST_SEED - 1000, help="Of the draw, and the first of k-means.", rich_help_panel=_CLUSTER_PANEL
        ),
    ] = 0,
    device: Device = "auto",
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Cluster the vectors of phrases by k-means: how much each layer knows of phrases (MiniLM, table 10)."""
    from limbeck.core.progress import ProgressBar
    from limbeck.inspection import SpanSample, cluster_phrases, read_chunks
    from limbeck.report.inspection import check_output, phrase_table

    console = progress_console(quiet, verbose)
    check_output(output)
    text = read_chunks(data)
    sample = SpanSample(spans, unlabelled, clusters, held_out, seed, tuple(range(seed, seed + seeds)))
    with ProgressBar(console) as bar:
        found = cluster_phrases(_load(model, teacher, device), text, sample, report=bar)
    _hand_over("phrases", found, output, None if as_json else phrase_table(found))


@inspect.command(
    epilog=examples(
        "limbeck inspect attention runs/mine/student --teacher google-bert/bert-base-uncased "
        '--sentence "The river had risen." --layers 3:6,6:12 --heads mean,1,2 --output look/'
    )
)
def attention(
    model: Model,
    teacher: Teacher = None,
    sentence: Annotated[
        str | None, typer.Option(help="Text of the maps; default: the first of the texts.", show_default=False)
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers of the maps, by commas: 6, 3:6 with the teacher's after the colon, or all; default: the last.",
            show_default=False,
        ),
    ] = None,
    heads: Annotated[str, typer.Option(help="Heads of the maps, by commas: numbers, mean or all.")] = "mean",
    texts: Texts = None,
    count: Count = 256,
    length: Length = 128,
    device: Device = "auto",
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Draw attention maps of a sentence; with a teacher, measure how far each layer and head is from its own."""
    from limbeck.core.progress import ProgressBar
    from limbeck.errors import RecipeError
    from limbeck.inspection import draw_maps, measure_divergence, read_texts
    from limbeck.report.inspection import check_output, divergence_table, maps_note

    console = progress_console(quiet, verbose)
    if sentence is not None and not sentence.strip():
        raise RecipeError("--sentence is empty; give it a word, or leave it out for the first of the texts.")
    check_output(output)
    if output is None and teacher is None and not as_json:
        raise RecipeError(
            "Without a teacher there are only maps to draw: give --output FOLDER (or --teacher, or --json)."
        )
    read = read_texts(texts, count)
    subjects = _load(model, teacher, device)
    beside = subjects[1] if len(subjects) > 1 else None
    pairs = read_layers(layers, subjects)
    with ProgressBar(console) as bar:
        maps = draw_maps(
            subjects[0], beside, sentence if sentence is not None else read[0],
            layers=pairs, heads_shown=read_heads(heads, subjects),
        )  # fmt: skip
        far = None if beside is None else measure_divergence(subjects[0], beside, read, length=length, report=bar)
    table = maps_note(maps) if far is None else divergence_table(far)
    _hand_over("attention", {"maps": maps, "divergence": far}, output, None if as_json else table)


@inspect.command(
    epilog=examples(
        "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --texts held-out.txt "
        "--output look/"
    )
)
def similarity(
    model: Model,
    teacher: Teacher = None,
    texts: Texts = None,
    count: Count = 512,
    length: Length = 128,
    device: Device = "auto",
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compare every layer with every layer of the teacher, or with its own: linear centred kernel alignment."""
    from limbeck.core.progress import ProgressBar
    from limbeck.inspection import measure_similarity, read_texts
    from limbeck.report.inspection import check_output, similarity_table

    console = progress_console(quiet, verbose)
    check_output(output)
    read = read_texts(texts, count)
    subjects = _load(model, teacher, device)
    with ProgressBar(console) as bar:
        found = measure_similarity(subjects[0], subjects[-1], read, length=length, report=bar)
    _hand_over("similarity", found, output, None if as_json else similarity_table(found))


@inspect.command(
    epilog=examples("limbeck inspect contribution google-bert/bert-base-uncased --texts held-out.txt --output look/")
)
def contribution(
    model: Model,
    teacher: Teacher = None,
    texts: Texts = None,
    count: Count = 512,
    length: Length = 128,
    device: Device = "auto",
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Measure how far each layer turns its input: the cosines behind the `contribution` mapping (ELM, 5.3.1)."""
    from limbeck.core.progress import ProgressBar, part_of
    from limbeck.inspection import measure_contribution, read_texts
    from limbeck.report.inspection import check_output, contribution_table

    console = progress_console(quiet, verbose)
    check_output(output)
    read = read_texts(texts, count)
    with ProgressBar(console) as bar:
        subjects = _load(model, teacher, device)
        found = [
            measure_contribution(
                subject, read, length=length, report=part_of(bar, i / len(subjects), (i + 1) / len(subjects))
            )
            for i, subject in enumerate(subjects)
        ]
    _hand_over("contribution", found, output, None if as_json else contribution_table(found))


def _load(model: str, teacher: str | None, device: str) -> list[Subject]:
    """Load the model and, where there is one, its teacher."""
    from limbeck.core.machine import choose_device
    from limbeck.inspection import load_subject

    chosen = choose_device(device)
    return [load_subject(name, device=chosen) for name in (model, teacher) if name is not None]


def _hand_over(name: str, found: Any, output: Path | None, table: RenderableType | None) -> None:
    """Write the files, and print the table, or JSON where there is none."""
    from limbeck.core.records import plain
    from limbeck.report.figures import inspection_pictures
    from limbeck.report.inspection import write_inspection

    data = {"inspection": name, "result": plain(found)}
    written = []
    if output is not None:
        written = write_inspection(output, name, data, inspection_pictures(name, data["result"]))
    if table is None:
        print_json(data)
        return
    result_console().print(table)
    for path in written:
        print_line(f"Written: {path}")


# Which layers and heads `limbeck inspect attention` draws, read from its options.


def read_layers(text: str | None, subjects: Sequence[Subject]) -> list[tuple[int, int]]:
    """Read pairs of a student layer and the teacher layer beside it.

    Args:
        text: Numbers by commas, each alone or with the teacher's after a colon, or `all`; None is the last layer. A
            layer alone stands beside that of the uniform mapping.
        subjects: The model, and its teacher if there is one.

    Raises:
        RecipeError: for other text, or a layer that is not there.
    """
    from limbeck.inspection.attention import check_layers
    from limbeck.methods.layer_mapping import uniform

    depth, teacher_depth = subjects[0].layers, subjects[-1].layers
    beside = uniform(depth, teacher_depth)
    pairs: list[tuple[int, int]] = []
    for part in (str(depth) if text is None else text).split(","):
        if part.strip() == "all":
            pairs += ((layer, teachers[0]) for layer, teachers in beside.items())
            continue
        student, colon, teacher = (piece.strip() for piece in part.partition(":"))
        if not _is_number(student) or (colon and not _is_number(teacher)):
            raise RecipeError(f"--layers '{str(text)[:80]}' has to be all, or layers by commas such as 6 or 3:6,6:12.")
        if colon and len(subjects) == 1:
            raise RecipeError(f"--layers '{str(text)[:80]}' names a layer of a teacher; give --teacher too.")
        check_layers(subjects[0], "student" if len(subjects) > 1 else "model", [int(student)])
        pairs.append((int(student), int(teacher) if colon else beside[int(student)][0]))
    return pairs


def read_heads(text: str, subjects: Sequence[Subject]) -> list[int]:
    """Read the heads: numbers by commas, `mean`, or `all`.

    Raises:
        RecipeError: for other text.
    """
    from limbeck.inspection import MEAN_HEAD
    from limbeck.models.families import shape_of

    found: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        if part == "mean":
            found.append(MEAN_HEAD)
        elif part == "all":
            found += range(1, shape_of(subjects[0].model.config).heads + 1)
        elif _is_number(part) and int(part) > 0:
            found.append(int(part))
        else:
            raise RecipeError(f"--heads '{text[:80]}' has to be mean, all, or numbers from 1 by commas.")
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
