"""`export` a student in another format, and `report` what folders hold, with the arguments of their commands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.given import refuse_unknown
from limbeck.api.objects import Objects, listed
from limbeck.api.showing import Pushed, Result, chosen_console, write_page
from limbeck.core.blocks import Block
from limbeck.core.progress import ProgressBar, line_by_line, print_plain
from limbeck.errors import RecipeError
from limbeck.export.request import ExportRequest

if TYPE_CHECKING:
    from limbeck.report.writing import WrittenReport

MOST_TEXTS = 1000
"""Of a file of texts to compare on."""


@dataclass(frozen=True, repr=False)
class ExportResult(Pushed):
    """What an export leaves.

    Args:
        folder: The exported model, with its card.
        files: Bytes of each of its files.
        record: As in `export.json`: what it was made from, and how far its outputs are from the student's.
        pushed: The address of the Hub's repository; None where it was not pushed.
    """

    folder: Path
    files: dict[str, int]
    record: dict[str, Any]
    pushed: str | None = None

    def _blocks(self) -> Iterator[Block]:
        from limbeck.report.export_text import export_blocks

        yield from export_blocks(self.record, str(self.folder))

    def _csv(self) -> str:
        return "file,bytes\n" + "".join(f"{name},{size}\n" for name, size in self.files.items())

    @property
    def _model(self) -> Path:
        return self.folder

    @property
    def _message(self) -> str:
        return f"Student as {self.record['format']}, exported with limbeck"


@refuse_unknown
def export(
    student: Any,
    format: str,  # noqa: A002
    *,
    documents: Any = None,
    output: str | Path | None = None,
    dtype: str | None = None,
    opset: int | None = None,
    text: str | Path | Sequence[str] | None = None,
    verify: bool = False,
    evaluation: str | Path | None = None,
    read_pickled: bool = False,
    overwrite: bool = False,
    push: str | None = None,
    private: bool = False,
    seconds: float = 20.0,
    console: Console | None = None,
) -> ExportResult:
    """Write a student in another format, measure how far it is from the student, and push it to the Hub.

    Args:
        student: A run's folder, a model's folder, `package:NAME` or a Hub name; a result of `distill`; or a model of
            transformers or sentence-transformers.
        format: `"onnx"`, `"onnx-int8"`, `"sentence-transformers"`, `"router"` or `"safetensors"`.
        documents: Of a router, the model for documents, given as the student; None is the teacher that the run names.
        output: The export's folder; None is beside the model's.
        dtype: Of the weights: `"float32"`, `"float16"`, `"bfloat16"`; None is the format's own.
        opset: Operator set of ONNX, 14 to 20; None is 17.
        text: Texts to compare on, or a file with one a line; None is the built-in text.
        verify: Compare again in a fresh process, on all of the text; int8 must hold too.
        evaluation: A folder of `evaluate`, for the model card; None is one in the run's.
        read_pickled: Read weights that are pickles, in a process apart, which takes nothing but tensors.
        overwrite: Replace an earlier export.
        push: `owner/name` on the Hub, to upload the folder to.
        private: Make a new repository private.
        seconds: For the latencies of int8.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    console, objects = chosen_console(console), Objects()
    if private and push is None:
        raise RecipeError("--private is for pushing only; give --push owner/name too, or leave it out.")
    if push is not None:
        from limbeck.export import pushing

        pushing.check_repository(push)
        pushing.check_login()
    name = objects.model(student, "student")
    if isinstance(text, str | Path):
        from limbeck.corpus.small_files import read_texts

        text = read_texts(Path(text), MOST_TEXTS)
    request = ExportRequest(
        name,
        format,
        output=None if output is None else Path(output),
        dtype=dtype,
        opset=opset,
        texts=text,
        verify=verify,
        overwrite=overwrite,
        seconds=seconds,
        read_pickled=read_pickled,
        documents=None if documents is None else objects.model(documents, "documents"),
    )
    request.check()
    # Torch is imported from here on, which takes seconds.
    from limbeck.export.exporting import export_model
    from limbeck.report.export_card import card_writer, run_problem

    if problem := run_problem(name):
        print_plain(console, problem, "yellow")
    finish = card_writer(name, None if evaluation is None else Path(evaluation))
    with ProgressBar(console) as bar:
        done = export_model(request, finish=finish, report=line_by_line(bar, console))
    result = ExportResult(done.folder, done.files, done.record)
    if push is None:
        return result
    print_plain(console, f"Uploading to {push} …")
    return ExportResult(done.folder, done.files, done.record, result.push(push, private=private))


@refuse_unknown
def report(
    folders: Any,
    output: str | Path | None = None,
    *,
    markdown: bool = False,
    figures: str | Path | None = None,
    show: bool = False,
) -> "WrittenReport":
    """Write one HTML page of what runs, comparisons, searches, evaluations and inspections found.

    Args:
        folders: A folder, or several that are put side by side; results of limbeck stand for their folders.
        output: The HTML file; by default `report.html` in the folder, or in the current one for several.
        markdown: Write the same as Markdown too, with its figures in a folder.
        figures: A folder for the figures as SVG and PNG, for papers.
        show: Open the page in a browser.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    given = listed(folders)
    for each in given:
        if not isinstance(each, Result | str | PathLike):
            raise RecipeError(f"folders: {each!r:.80} is no folder; give paths of folders, or results of limbeck.")
    several = [each.folder if isinstance(each, Result) else Path(each) for each in given]
    return write_page(several, output, markdown=markdown, figures=figures, show=show)
