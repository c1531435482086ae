"""`limbeck export`: a student as ONNX, int8, sentence-transformers, router or half precision, checked and pushed."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from limbeck.api.requests.export import PUSHING, ExportRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result
from limbeck.core.blocks import counted
from limbeck.core.paths import MODEL_CARD
from limbeck.errors import RecipeError


@request_command(
    ExportRequest,
    "limbeck export runs/mine --format onnx --verify",
    "limbeck export runs/mine --format onnx-int8 --output deploy/",
    "limbeck export runs/mine --format safetensors --dtype float16 --push me/student --dry-run",
    "limbeck export runs/mine --format router --documents intfloat/e5-small-v2",
    "limbeck export runs/mine/checkpoint-500 --format safetensors",
    "limbeck export old-model --format safetensors --read-pickled --output safe-model",
    options="student format documents output dtype opset text verify evaluation read_pickled overwrite push private "
    "dry_run seconds",
)
def export(
    request: ExportRequest,
    messages: Messages,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="With --push: list what would be uploaded, without using the network.",
            rich_help_panel=PUSHING,
        ),
    ] = False,
) -> None:
    """Export a student to another format, measure how much its outputs change, and push the export to the Hub."""
    from limbeck.api.exporting import carry_out_export

    request = messages.of(request)
    repository = request.push
    if dry_run:
        if repository is None:
            raise RecipeError("--dry-run applies only to pushing; give --push owner/name too, or leave --dry-run out.")
        from limbeck.export.pushing import check_repository

        check_repository(repository)
        # The files are made as they would be pushed, and stay here.
        request = replace(request, push=None, private=False)
    result = carry_out_export(request)

    content: dict[str, Any] = {
        "folder": result.folder,
        "files": result.files,
        "export": result.record,
        "repository": repository,
        "pushed": result.pushed,
    }
    lines: list[str | Text] = []
    if dry_run:
        front_matter = _front_matter(result.folder)
        content["front_matter"] = front_matter
        megabytes = sum(result.files.values()) / 1e6
        files = counted(len(result.files), "file")
        lines.append(Text(f"Would push {files}, {megabytes:.1f} MB, to {repository}:", style="bold"))
        lines += [f"  {name}  {size:,} bytes" for name, size in result.files.items()]
        lines.append(front_matter)
    if result.pushed is not None:
        lines.append(f"Pushed: {result.pushed}")
    lines.append(result.place)
    print_result(messages.as_json, content, result.blocks(), *lines)


def _front_matter(folder: Path) -> str:
    """Return the front matter of a model card, which stands between two lines of three hyphens."""
    card = (folder / MODEL_CARD).read_text(encoding="utf-8")
    front_matter, _, _ = card.partition("\n---\n")
    return f"{front_matter}\n---"
