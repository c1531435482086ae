"""`limbeck export`: a student as ONNX, int8, sentence-transformers, router or half precision, checked and pushed."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli import options
from limbeck.cli.messages import Messages, print_json, print_line, result_console
from limbeck.cli.options import measuring_option
from limbeck.core.blocks import counted
from limbeck.core.paths import MODEL_CARD
from limbeck.errors import RecipeError

_push_option = partial(typer.Option, rich_help_panel="Pushing to the Hub")


@options.command(
    "limbeck export runs/mine --format onnx --verify",
    "limbeck export runs/mine --format onnx-int8 --output deploy/",
    "limbeck export runs/mine --format safetensors --dtype float16 --push me/student --dry-run",
    "limbeck export runs/mine --format router --documents intfloat/e5-small-v2",
    "limbeck export old-model --format safetensors --read-pickled --output safe-model",
)
def export(
    student: Annotated[str, typer.Argument(help="A run's folder, a model's folder, package:NAME or a Hub name.")],
    export_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="onnx, onnx-int8, sentence-transformers, router or safetensors.",
            autocompletion=options.complete(options.FORMATS),
        ),
    ],
    documents: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Router only: the model for documents; default: the teacher named in the run."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Output folder; default: beside the model's.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Number format of the weights: float32, float16 or bfloat16.",
            autocompletion=options.complete(options.DTYPES),
        ),
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set, 14 to 20; default: 17.")] = None,
    text: Annotated[
        Path | None, measuring_option(help="Compare on the lines of this file instead of the built-in text.")
    ] = None,
    verify: Annotated[
        bool,
        measuring_option("--verify", help="Compare again in a fresh process, on all of the text; int8 must pass too."),
    ] = False,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Folder of `limbeck evaluate` with scores for the model card; default: one in the run."),
    ] = None,
    read_pickled: Annotated[
        bool,
        typer.Option(
            "--read-pickled",
            help=(
                "Read a model that has only pytorch_model.bin, in a separate process that accepts nothing but tensors."
            ),
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    push: Annotated[
        str | None, _push_option(metavar="OWNER/NAME", help="Upload the folder to this repository of the Hub.")
    ] = None,
    private: Annotated[bool, _push_option("--private", help="Make a new repository private.")] = False,
    dry_run: Annotated[
        bool,
        _push_option("--dry-run", help="With --push: list what would be uploaded, without using the network."),
    ] = False,
    seconds: Annotated[
        float, measuring_option(min=0.01, max=options.LONGEST_SECONDS, help="Time for measuring the latencies of int8.")
    ] = 20.0,
    *,
    messages: Messages,
) -> None:
    """Export a student to another format, measure how far the export is from the student, and push it to the Hub."""
    from limbeck.api.exporting import export as run_export

    console = messages.console()
    if dry_run:
        if push is None:
            raise RecipeError("--dry-run is for pushing only; give --push owner/name too, or leave it out.")
        from limbeck.export.pushing import check_repository

        check_repository(push)
    done = run_export(
        student, export_format, documents=documents, output=output, dtype=dtype, opset=opset, text=text, verify=verify,
        evaluation=evaluation, read_pickled=read_pickled, overwrite=overwrite, push=None if dry_run else push,
        private=private and not dry_run, seconds=seconds, console=console,
    )  # fmt: skip
    pushed = done.pushed
    front_matter = _front_matter(done.folder) if dry_run else None
    if messages.as_json:
        content = {"folder": done.folder, "files": done.files, "export": done.record}
        card = {} if front_matter is None else {"front_matter": front_matter}
        print_json({**content, "repository": push, "pushed": pushed, **card})
        return
    _show(done.record)
    if front_matter is not None:
        size = sum(done.files.values()) / 1e6
        print_line(f"Would push {counted(len(done.files), 'file')}, {size:.1f} MB, to {push}:", style="bold")
        for name, count in done.files.items():
            print_line(f"  {name}  {count:,} bytes")
        print_line(front_matter)
    if pushed is not None:
        print_line(f"Pushed: {pushed}")
    print_line(f"Folder: {done.folder}")


def _show(record: dict[str, Any]) -> None:
    """Print what was measured."""
    from limbeck.report.export_text import export_lines, export_title, latency_table

    print_line(f"{record['source']} as {export_title(record)}", style="bold")
    for line in export_lines(record):
        print_line(line, style="yellow" if line.startswith("int8 is slower") else None)
    if record.get("int8"):
        result_console().print(latency_table(record))


def _front_matter(folder: Path) -> str:
    card = (folder / MODEL_CARD).read_text(encoding="utf-8")
    return card.split("\n---\n")[0] + "\n---"
