"""`limbeck quickstart`: a real teacher becomes a real student, in minutes on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import Json, Overrides, Overwrite, Quiet, Verbose, with_examples


@with_examples("limbeck quickstart", "limbeck quickstart --corpus my-texts/ --output runs/mine")
def quickstart(
    corpus: Annotated[
        list[str] | None, typer.Option(help="Other text than the installed docstrings; may be repeated.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="The run's folder; default: runs/quickstart, or one named after the corpus."),
    ] = None,
    overrides: Overrides = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Distil all-MiniLM-L6-v2 into a 3-layer student on the docstrings of this machine, and compare the two.

    Needs the extra `quickstart`. Run a second time, it shows what it has; a run that was stopped is continued.
    """
    from limbeck.api import distill
    from limbeck.cli.distill import merge_options
    from limbeck.core.yaml import parse_yaml
    from limbeck.recipe.load import read_shipped
    from limbeck.report.quality import comparison_table

    console = progress_console(quiet, verbose)
    data = parse_yaml(read_shipped("quickstart"), "The quickstart recipe")
    folder = output or default_output(data["output"], corpus)
    data = merge_options(data, {"output": folder, **({"corpus": corpus} if corpus else {})})
    result = distill(data, overrides or [], resume=not overwrite, overwrite=overwrite, console=console)
    if as_json:
        print_json({"student": result.student, "metrics": result.metrics})
        return
    result_console().print(comparison_table(result.metrics))
    print_line(f"Student: {result.student}")
    print_line(
        f'Try it:  python -c "from sentence_transformers import SentenceTransformer; '
        f"print(SentenceTransformer('{result.student}').encode('a small, fast model').shape)\""
    )


def default_output(folder: str, corpus: list[str] | None) -> str:
    """Name a run on other text after it, so that it does not meet the first one."""
    if not corpus:
        return folder
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in Path(corpus[0].rstrip("/")).name)
    return f"{folder}-{name.strip('-.') or 'corpus'}"
