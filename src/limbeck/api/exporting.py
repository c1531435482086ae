"""`export`: a student in another format."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.calls import python_call
from limbeck.api.checkpoint_students import find_checkpoint, make_student
from limbeck.api.model_folder import ModelFolder
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests import export as requests
from limbeck.api.requests.values import optional_path
from limbeck.api.results import Pushed
from limbeck.core import exports, records
from limbeck.core.blocks import Block
from limbeck.core.paths import RECIPE, STUDENT, run_of_student
from limbeck.core.progress_bars import ProgressBar, activity, line_by_line, print_plain
from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.export.request import ExportRequest, check_output
from limbeck.training.run_checkpoints import RunCheckpoint

if TYPE_CHECKING:
    from limbeck.models.sample_texts import Text

MOST_TEXTS = 1000
"""Texts to compare on that are read of a file, or held-out rows of a run."""
_EXACT = "float32"
"""The number format whose decisions are those of the student but for rounding, so that few texts tell enough."""


@dataclass(frozen=True, repr=False)
class ExportResult(Pushed):
    """The result of an export.

    Args:
        folder: The exported model, with its card.
        files: Bytes of each of its files.
        export: The record: what it was made from, and how far its outputs are from the student's.
        pushed: The address of the Hub's repository; None where it was not pushed.
    """

    folder: Path
    files: dict[str, int]
    export: exports.Export
    pushed: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The record as plain values, as in `export.json`."""
        return self.export.to_dict()

    def blocks(self) -> Iterator[Block]:
        """Yield what was exported, and what was measured of it."""
        from limbeck.report.export_text import export_blocks

        yield from export_blocks(self.export)

    @property
    def place(self) -> str:
        """The line below the table: where the export lies."""
        return f"Folder: {self.folder}"

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        return "file,bytes\n" + "".join(f"{name},{size}\n" for name, size in self.files.items())

    @property
    def _model(self) -> Path:
        """The folder of the model."""
        return self.folder

    @property
    def _message(self) -> str:
        """The message of the commit on the Hub."""
        return f"Student as {self.export.format}, exported with limbeck"


def carry_out_export(request: requests.ExportRequest) -> ExportResult:
    """Write a student in another format, measure how far it is from the student, and push it to the Hub.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.export("runs/e5/student", "safetensors", dtype="float16", output="runs/half")
        >>> result.folder
        ModelFolder('runs/half')
    """
    console = progress_console(request.console)
    objects = Objects()
    if request.private and request.push is None:
        raise RecipeError("--private applies only to pushing; give --push owner/name too, or leave --private out.")
    if request.push is not None:
        from limbeck.export import pushing

        pushing.check_repository(request.push)
        pushing.check_login()
    checkpoint = find_checkpoint(request.student)
    if checkpoint is not None:
        return _export_checkpoint(request, checkpoint)
    student = objects.model(request.student, "student")
    texts = request.text
    if isinstance(texts, str | Path):
        from limbeck.corpus.files.small_files import read_texts

        texts = read_texts(Path(texts), MOST_TEXTS)
    documents = None
    if request.documents is not None:
        documents = objects.model(request.documents, "documents")
    export_request = ExportRequest(
        student,
        request.format,
        output=optional_path(request.output),
        dtype=request.dtype,
        opset=request.opset,
        texts=texts,
        verify=request.verify,
        overwrite=request.overwrite,
        seconds=request.seconds,
        read_pickled=request.read_pickled,
        documents=documents,
    )
    export_request.check()
    # Torch is imported from here on, which takes seconds.
    from limbeck.export.exporting import export_model
    from limbeck.report.export_card import card_writer, run_problem

    if export_request.format_options.dtype != _EXACT:
        export_request = replace(export_request, held_out=_held_out_texts(student, console))
    problem = run_problem(student)
    if problem:
        print_plain(console, problem, "yellow")
    finish = card_writer(student, optional_path(request.evaluation))
    with ProgressBar(console, is_even=False) as bar:
        exported = export_model(export_request, finish=finish, report=line_by_line(bar, console))
    result = ExportResult(ModelFolder(exported.folder), exported.files, exports.Export.read(exported.record))
    if request.push is None:
        return result
    print_plain(console, f"Uploading to {request.push} …")
    return replace(result, pushed=result.push(request.push, private=request.private))


def _held_out_texts(student: str, console: Console) -> "list[Text]":
    """Return the texts of the held-out labelled rows of the run that made a student; none where it has no such rows.

    If the rows cannot be read, the user is told so, and the export goes on without them.
    """
    from limbeck.corpus.building.held_out_rows import read_held_out_rows
    from limbeck.corpus.settings import LabelledSettings
    from limbeck.export.held_out_texts import texts_of_rows
    from limbeck.kinds.registry import KINDS
    from limbeck.models.locating import locate_model
    from limbeck.recipe.facts import load_checked
    from limbeck.recipe.plan import plan_checked
    from limbeck.training.task_scores import last_stage_of_head

    folder = Path(locate_model(student)).expanduser()
    run = run_of_student(folder) if folder.is_dir() else None
    if run is None:
        return []
    # A stage may have saved a student of its own in the run's folder, whose task need not be that of these rows.
    is_student_of_run = folder.resolve() == (run / STUDENT).resolve()
    if not is_student_of_run:
        return []
    try:
        stage = last_stage_of_head(plan_checked(load_checked(run / RECIPE)))
        if stage is None or not isinstance(stage.corpus, LabelledSettings):
            return []
        with activity(console, "reading held-out rows"):
            kind = KINDS[stage.corpus.task]
            held_out = read_held_out_rows(stage.corpus, kind)
        # Of other rows, others are held out, and the student may have been trained on these.
        if _were_changed(held_out.content, run):
            raise CorpusError("its rows are not those that the student was trained on.")
        return texts_of_rows(held_out.rows, kind, MOST_TEXTS)
    except LimbeckError as error:
        print_plain(console, f"The run's held-out rows are not compared on: {error}", "yellow")
    return []


def _were_changed(content: list[str], run: Path) -> bool:
    """Return whether rows are not those of a run, whose record may be too old to tell.

    Args:
        content: Hashes of the rows as they are now.
        run: The run's folder.
    """
    corpus = records.load(records.Run, run).corpus or records.CorpusText()
    contents = [view.content for view in corpus.views if view.content]
    if not contents:
        return False
    return all(recorded[: len(content)] != content for recorded in contents)


def _export_checkpoint(request: requests.ExportRequest, checkpoint: RunCheckpoint) -> ExportResult:
    """Export the student of a checkpoint, which is made for the purpose; the folder lies in the run's by default."""
    output = optional_path(request.output)
    if output is None:
        output = checkpoint.run / f"{checkpoint.name}-{request.format}"
    with TemporaryDirectory() as folder:
        place = Path(folder) / f"{checkpoint.run.resolve().name}-{checkpoint.name}"
        # What can be refused is refused before the student is made.
        check_output(output, str(checkpoint.folder), overwrite=request.overwrite)
        student = make_student(checkpoint, place, request.console)
        return carry_out_export(replace(request, student=str(student), output=output))


export = python_call("export", requests.ExportRequest, carry_out_export)
