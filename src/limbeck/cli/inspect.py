"""`limbeck inspect`: a look inside a model, alone or beside its teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from limbeck.cli.given import check_models, check_text
from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import LAST_SEED, MOST, Device, command, command_group, parse_list, result_option, whole_number
from limbeck.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limbeck.core.progress import ProgressBar
    from limbeck.inspection import Subject


_text_option = partial(typer.Option, rich_help_panel="The text")
_cluster_option = partial(typer.Option, rich_help_panel="Spans and clusters", max=MOST)

Model = Annotated[str, typer.Argument(help="A folder, package:NAME, or a Hub name; the student, with --teacher.")]
Teacher = Annotated[str | None, typer.Option(help="Second model, to compare it with.")]
Count = Annotated[int, _text_option(min=1, max=MOST, help="Texts to read, spread over the file.")]


@dataclass(frozen=True)
class _Texts:
    texts: Annotated[
        Path | None,
        _text_option("--texts", "--text", help="File with one text per line; default: built-in sentences."),
    ] = None
    count: Count = 512
    length: Annotated[int, _text_option(min=2, max=MOST, help="Longest text in tokens; longer texts are cut.")] = 128

    def read(self) -> Sequence[str]:
        from limbeck.inspection import read_texts

        return read_texts(self.texts, self.count)


@dataclass(frozen=True)
class _TextsOfMaps(_Texts):
    count: Count = 256


@dataclass(frozen=True)
class _Files:
    device: Device = "auto"
    output: Annotated[
        Path | None,
        result_option(help="A folder for figure and data, or one file: .png, .svg, .pdf (figure) or .json (data)."),
    ] = None
    messages: Messages = field(default_factory=Messages)

    def begin(self, *models: str | None, texts: Path | None = None) -> ProgressBar:
        """Refuse models, texts, devices and outputs that cannot be, without torch, and return the progress."""
        from limbeck.core.machine import check_device
        from limbeck.core.progress import ProgressBar
        from limbeck.report.plots import check_output

        console = self.messages.console()
        check_output(self.output)
        check_device(self.device)
        check_models(*models)
        check_text(texts)
        return ProgressBar(console)

    def load(self, *models: str | None) -> list[Subject]:
        """Load the model and, where there is one, its teacher."""
        from limbeck.core.machine import choose_device
        from limbeck.inspection import load_subject

        chosen = choose_device(self.device)
        return [load_subject(name, device=chosen) for name in models if name is not None]

    def finish(self, name: str, found: Any, table: RenderableType) -> None:
        """Write the files, and print the result."""
        from limbeck.core.records import plain
        from limbeck.report.inspection import inspection_pictures, write_inspection

        data = {"inspection": name, "result": plain(found)}
        written = []
        if self.output is not None:
            written = write_inspection(self.output, name, data, inspection_pictures(name, data["result"]))
        print_result(self.messages.as_json, data, table, *(f"Written: {path}" for path in written))


inspect = command_group(
    "inspect",
    "Look inside a model, alone or beside its teacher, in numbers and figures.",
    "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --output look/",
)


@command(
    "limbeck inspect phrases runs/mine/student --teacher google-bert/bert-base-uncased --data conll2000/test.txt "
    "--output look/",
    group=inspect,
)
def phrases(
    model: Model,
    data: Annotated[Path, typer.Option(help="Chunked text in the CoNLL-2000 format: word, part of speech, tag.")],
    teacher: Teacher = None,
    spans: Annotated[int, _cluster_option(min=1, help="Number of chunks to draw.")] = 3000,
    unlabelled: Annotated[
        int, _cluster_option(min=0, help="Number of spans between chunks to draw, as an additional label.")
    ] = 500,
    clusters: Annotated[
        int | None,
        _cluster_option(min=2, help="Number of clusters; default: the number of labels.", show_default=False),
    ] = None,
    held_out: Annotated[
        int,
        _cluster_option(min=0, help="Number of spans to score without clustering them; 0: score the clustered spans."),
    ] = 0,
    seeds: Annotated[int, _cluster_option(min=1, max=1000, help="Runs of k-means.")] = 3,
    seed: Annotated[
        int, _cluster_option(min=0, max=LAST_SEED - 1000, help="Seed of the draw, and first seed of k-means.")
    ] = 0,
    *,
    files: _Files,
) -> None:
    """Cluster the vectors of phrases by k-means: how much each layer knows about phrases (MiniLM, table 10)."""
    with files.begin(model, teacher, texts=data) as bar:
        from limbeck.inspection import SpanSample, cluster_phrases, read_chunks
        from limbeck.report.inspection import phrase_table

        text = read_chunks(data)
        sample = SpanSample(spans, unlabelled, clusters, held_out, seed, tuple(range(seed, seed + seeds)))
        found = cluster_phrases(files.load(model, teacher), text, sample, report=bar)
    files.finish("phrases", found, phrase_table(found))


@command(
    "limbeck inspect attention runs/mine/student --teacher google-bert/bert-base-uncased "
    '--sentence "The river had risen." --layers 3:6,6:12 --heads mean,1,2 --output look/',
    group=inspect,
)
def attention(
    model: Model,
    teacher: Teacher = None,
    sentence: Annotated[
        str | None, typer.Option(help="Sentence to draw maps of; default: the first text.", show_default=False)
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help=(
                "Layers to draw, separated by commas: 6, 3:6 with the teacher's after the colon, or all; default: "
                "the last."
            ),
            show_default=False,
        ),
    ] = None,
    heads: Annotated[str, typer.Option(help="Heads to draw, separated by commas: numbers, mean or all.")] = "mean",
    *,
    texts: _TextsOfMaps,
    files: _Files,
) -> None:
    """Draw attention maps of a sentence; with a teacher, measure how far it is from the teacher's, head by head."""
    if sentence is not None and not sentence.strip():
        raise RecipeError("--sentence is empty; give it a word, or leave it out for the first text.")
    with files.begin(model, teacher, texts=texts.texts) as bar:
        if files.output is None and teacher is None and not files.messages.as_json:
            raise RecipeError(
                "Without a teacher there are only maps to draw: give --output FOLDER (or --teacher, or --json)."
            )
        from limbeck.inspection import draw_maps, measure_divergence
        from limbeck.report.inspection import divergence_table, maps_note

        read = texts.read()
        subjects = files.load(model, teacher)
        beside = subjects[1] if len(subjects) > 1 else None
        maps = draw_maps(
            subjects[0], beside, sentence if sentence is not None else read[0],
            layers=read_layers(layers, subjects), heads_shown=read_heads(heads, subjects),
        )  # fmt: skip
        far = None if beside is None else measure_divergence(subjects[0], beside, read, length=texts.length, report=bar)
    table = maps_note(maps) if far is None else divergence_table(far)
    files.finish("attention", {"maps": maps, "divergence": far}, table)


@command(
    "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --texts held-out.txt "
    "--output look/",
    group=inspect,
)
def similarity(model: Model, teacher: Teacher = None, *, texts: _Texts, files: _Files) -> None:
    """Compare every layer with every layer of the teacher, or of the model itself: linear centred kernel alignment."""
    with files.begin(model, teacher, texts=texts.texts) as bar:
        from limbeck.inspection import measure_similarity
        from limbeck.report.inspection import similarity_table

        read = texts.read()
        subjects = files.load(model, teacher)
        found = measure_similarity(subjects[0], subjects[-1], read, length=texts.length, report=bar)
    files.finish("similarity", found, similarity_table(found))


@command(
    "limbeck inspect contribution google-bert/bert-base-uncased --texts held-out.txt --output look/", group=inspect
)
def contribution(model: Model, teacher: Teacher = None, *, texts: _Texts, files: _Files) -> None:
    """Measure how much each layer changes its input: the cosines behind the `contribution` mapping (ELM, 5.3.1)."""
    with files.begin(model, teacher, texts=texts.texts) as bar:
        from limbeck.core.progress import part_of
        from limbeck.inspection import measure_contribution
        from limbeck.report.inspection import contribution_table

        read = texts.read()
        subjects = files.load(model, teacher)
        parts = [part_of(bar, i / len(subjects), (i + 1) / len(subjects)) for i in range(len(subjects))]
        found = [
            measure_contribution(subject, read, length=texts.length, report=part)
            for subject, part in zip(subjects, parts, strict=True)
        ]
    files.finish("contribution", found, contribution_table(found))


# The layers and heads that `limbeck inspect attention` draws.


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
    given = f"--layers '{str(text)[:80]}'"

    def read(part: str) -> list[tuple[int, int]]:
        if part == "all":
            return [(layer, teachers[0]) for layer, teachers in beside.items()]
        student, colon, teacher = part.partition(":")
        layer, other = (whole_number(piece.strip()) for piece in (student, teacher if colon else student))
        if colon and len(subjects) == 1:
            raise RecipeError(f"{given} names a layer of a teacher; give --teacher too.")
        check_layers(subjects[0], "student" if len(subjects) > 1 else "model", [layer])
        return [(layer, other if colon else beside[layer][0])]

    refusal = f"{given} must be all, or layers separated by commas, such as 6 or 3:6,6:12."
    return parse_list(str(depth) if text is None else text, read, refusal)


def read_heads(text: str, subjects: Sequence[Subject]) -> list[int]:
    """Read the heads: numbers by commas, `mean`, or `all`.

    Raises:
        RecipeError: for other text.
    """
    from limbeck.inspection import MEAN_HEAD
    from limbeck.models.families import shape_of

    heads = range(1, shape_of(subjects[0].model.config).heads + 1)
    refusal = f"--heads '{text[:80]}' must be mean, all, or numbers from 1, separated by commas."
    named = {"mean": [MEAN_HEAD], "all": heads}
    return parse_list(text, lambda part: named.get(part) or [whole_number(part, 1)], refusal)
