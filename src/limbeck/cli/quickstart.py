"""`limbeck quickstart`: a real teacher becomes a real student, in minutes on a CPU."""

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cli.distill import print_run
from limbeck.cli.messages import Messages
from limbeck.cli.options import Device, Overrides, Overwrite, command


@command("limbeck quickstart", "limbeck quickstart --corpus my-texts/ --output runs/mine")
def quickstart(
    corpus: Annotated[
        list[str] | None, typer.Option(help="Text to train on instead of the installed docstrings; may be repeated.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="Output folder of the run; default: runs/quickstart, or one named after the corpus."),
    ] = None,
    overrides: Overrides = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    *,
    messages: Messages,
) -> None:
    """Distil all-MiniLM-L6-v2 into a 3-layer student on the docstrings of this machine, and compare the two.

    Needs the extra `quickstart`. Run a second time, it shows the finished result; a stopped run is continued.
    """
    from limbeck.api import distill
    from limbeck.core.yaml import parse_yaml
    from limbeck.recipe.asked import merge_options
    from limbeck.recipe.load import read_shipped

    console = messages.console()
    data = parse_yaml(read_shipped("quickstart"), "The quickstart recipe")
    folder = output or default_output(data["output"], corpus)
    data = merge_options(data, {"output": folder, **({"corpus": corpus} if corpus else {})})
    data = follow_text(data)
    result = distill(data, overrides or [], resume=not overwrite, overwrite=overwrite, console=console)
    trial = (
        f'Try it:  python -c "from sentence_transformers import SentenceTransformer; '
        f"print(SentenceTransformer('{result.student}').encode('a small, fast model').shape)\""
    )
    print_run(result.student, result.metrics, messages.as_json, trial)


def follow_text(data: dict[str, Any]) -> dict[str, Any]:
    """Leave random words out where the text is not that of installed programs: ordinary text is wide enough."""
    if all(source.startswith("installed-") for source in data["corpus"]["sources"]):
        return data
    return data | {"stages": [{key: stage[key] for key in stage if key != "augment"} for stage in data["stages"]]}


def default_output(folder: str, corpus: list[str] | None) -> str:
    """Name a run on other text after it, so that it does not meet the first one."""
    if not corpus:
        return folder
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in Path(corpus[0].rstrip("/")).name)
    return f"{folder}-{name.strip('-.') or 'corpus'}"
