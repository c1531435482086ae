"""`limbeck quickstart`: a real teacher becomes a real student, in minutes on a CPU."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.api.requests.values import changes
from limbeck.cli.command import command
from limbeck.cli.distill import print_run
from limbeck.cli.messages import Messages
from limbeck.cli.options import Device, Json, Overrides, Overwrite, Quiet, Verbose


@command("limbeck quickstart", "limbeck quickstart --corpus my-texts/ --output runs/mine")
def quickstart(
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Text to train on instead of WordNet's examples; may be repeated."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="Output folder of the run; default: runs/quickstart, or one named after the corpus."),
    ] = None,
    overrides: Overrides = None,
    device: Device = "auto",  # Its callback chooses the device before this function runs.
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Distil all-MiniLM-L6-v2 into a 3-layer student on definitions and examples of WordNet, and compare the two.

    The teacher comes with the extra `quickstart` of the package.

    If you run the command again, it shows the finished result, or continues a run that was stopped.
    """
    from limbeck.api.distilling import carry_out_distillation
    from limbeck.api.requests.distil import DistilRequest
    from limbeck.core.yaml import parse_yaml
    from limbeck.recipe.asked import merge_options
    from limbeck.recipe.shipped import read_shipped

    messages = Messages(quiet, verbose, as_json)
    recipe = parse_yaml(read_shipped("quickstart"), "The quickstart recipe")
    # These options replace the text and the output folder of the shipped recipe.
    options: dict[str, Any] = {"output": output or default_output(recipe["output"], corpus)}
    if corpus:
        options["corpus"] = corpus
    request = DistilRequest(
        merge_options(recipe, options),
        changes("--set", overrides),
        resume=not overwrite,  # A stopped run is continued, and a finished one is shown, unless it is to be replaced.
        overwrite=overwrite,
        console=messages.console(),
    )
    result = carry_out_distillation(request)
    trial = (
        f'Try it:  python -c "from sentence_transformers import SentenceTransformer; '
        f"print(SentenceTransformer('{result.student}').encode('a small, fast model').shape)\""
    )
    print_run(result, messages.as_json, trial)


def default_output(folder: str, corpus: list[str] | None) -> str:
    """Name a run on other text after it, so that it does not meet the first one."""
    if not corpus:
        return folder
    text = Path(corpus[0].rstrip("/")).name
    name = re.sub(r"[^\w.-]", "-", text).strip("-.")
    return f"{folder}-{name or 'corpus'}"
