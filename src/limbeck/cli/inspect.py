"""`limbeck inspect`: a look inside a model, alone or beside its teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import LAST_SEED, Device, command, command_group, result_option
from limbeck.core.lists import MOST
from limbeck.errors import RecipeError

_text_option = partial(typer.Option, rich_help_panel="The text")
_cluster_option = partial(typer.Option, rich_help_panel="Spans and clusters", max=MOST)

Model = Annotated[str, typer.Argument(help="A folder, package:NAME, or a Hub name; the student, with --teacher.")]
Teacher = Annotated[str | None, typer.Option(help="Second model, to compare it with.")]
Count = Annotated[int, _text_option(min=1, max=MOST, help="Number of texts to read, spread over the file.")]


@dataclass(frozen=True)
class _Texts:
    texts: Annotated[
        Path | None,
        _text_option("--texts", "--text", help="File with one text per line; default: built-in sentences."),
    ] = None
    count: Count = 512
    length: Annotated[int, _text_option(min=2, max=MOST, help="Longest text in tokens; longer texts are cut.")] = 128

    def given(self) -> dict[str, Any]:
        return {"texts": self.texts, "count": self.count, "length": self.length}


@dataclass(frozen=True)
class _TextsOfMaps(_Texts):
    count: Count = 256


@dataclass(frozen=True)
class _Files:
    device: Device = "auto"
    output: Annotated[
        Path | None,
        result_option(
            help=(
                "Folder for the figure and its data, or one file: .png, .svg or .pdf for the figure, .json for "
                "the data."
            )
        ),
    ] = None
    messages: Messages = field(default_factory=Messages)

    def run(self, kind: str, model: str, teacher: str | None, **options: Any) -> None:
        """Inspect, and print the result."""
        from limbeck.api.inspecting import inspect as run_inspection

        console = self.messages.console()
        done = run_inspection(kind, model, teacher, output=self.output, device=self.device, console=console, **options)
        content = {"inspection": kind, "result": done.found}
        print_result(self.messages.as_json, content, done.table, *(f"Written: {path}" for path in done.files))


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
        _cluster_option(
            min=0,
            help="Number of spans that are held out of the clustering and only scored; 0: score the clustered spans.",
        ),
    ] = 0,
    seeds: Annotated[int, _cluster_option(min=1, max=1000, help="Number of runs of k-means.")] = 3,
    seed: Annotated[
        int,
        _cluster_option(
            min=0, max=LAST_SEED - 1000, help="Seed for drawing the chunks, and the first seed of k-means."
        ),
    ] = 0,
    *,
    files: _Files,
) -> None:
    """Cluster the vectors of phrases by k-means: how much each layer knows about phrases (MiniLM, table 10)."""
    files.run(
        "phrases", model, teacher, data=data, spans=spans, unlabelled=unlabelled, clusters=clusters,
        held_out=held_out, seeds=seeds, seed=seed,
    )  # fmt: skip


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
    if files.output is None and teacher is None and not files.messages.as_json:
        raise RecipeError("Without a teacher there are only maps to draw: give --output FOLDER, --teacher or --json.")
    maps = {"sentence": sentence, "layers": layers, "heads": heads}
    files.run("attention", model, teacher, **maps, **texts.given())


@command(
    "limbeck inspect similarity runs/mine/student --teacher google-bert/bert-base-uncased --texts held-out.txt "
    "--output look/",
    group=inspect,
)
def similarity(model: Model, teacher: Teacher = None, *, texts: _Texts, files: _Files) -> None:
    """Compare every layer with every layer of the teacher, or of the model itself: linear centred kernel alignment."""
    files.run("similarity", model, teacher, **texts.given())


@command(
    "limbeck inspect contribution google-bert/bert-base-uncased --texts held-out.txt --output look/", group=inspect
)
def contribution(model: Model, teacher: Teacher = None, *, texts: _Texts, files: _Files) -> None:
    """Measure how much each layer changes its input: the cosines behind the `contribution` mapping (ELM, 5.3.1)."""
    files.run("contribution", model, teacher, **texts.given())
