"""What the commands have in common: options, the panels of their help, its examples, and reading lists of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

# What the shell completes: names that are written down here, since asking the registries would import torch.
#
# A test holds them to the registries.


RECIPE_CARDS = ("teacher_assistant", "truncated_teacher")
# A method has a card of its name.
_CARDS = sorted(path.stem for path in (Path(__file__).parents[1] / "methods" / "method_cards").glob("*.md"))
METHODS = tuple(name for name in _CARDS if name not in (*RECIPE_CARDS, "README"))
STUDENTS = (
    "minilm-6x384", "minilm-4x384", "minilm-3x384", "minilm-12x384", "minilm-6x768", "minilmv2-12x384-e128",
    "tinybert-4x312", "nas-4x576", "nas-3x384",
)  # fmt: skip
TASK_GROUPS = ("glue", "glue_leaderboard", "qa", "cross_lingual", "chinese", "few_chinese", "similarity")
_EVALUATION = Path(__file__).parents[1] / "evaluation" / "data"
# Of these the files are what there is.
TASKS, PROTOCOLS = (
    sorted(path.stem for path in (_EVALUATION / kind).glob("*.yaml")) for kind in ("tasks", "protocols")
)
FORMATS = ("onnx", "onnx-int8", "sentence-transformers", "safetensors")
OBJECTIVES = ("relation_kl", "attention_score_mse", "soft_label_kl")
SAMPLERS = ("tpe", "random", "nsga2", "gp")
DTYPES = ("float32", "bfloat16", "float16")

Complete = Callable[[str], list[str]]


def complete(names: Sequence[str]) -> Complete:
    """Return a function that completes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_list(names: Sequence[str]) -> Complete:
    """Return a function that completes the last of names separated by commas, leaving out those that are there."""

    def completions(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in given]

    return completions


RUN_PANEL = "What is distilled"
TRAINING_PANEL = "Training"
MEASURING_PANEL = "Measuring"
RESULT_PANEL = "Result and messages"

MOST = 1_000_000
"""The largest number in a list of sizes: above it there is no text so long and no model so wide."""

LONGEST_SECONDS = 86_400
"""The most time for a measurement: a day."""
LAST_SEED = 2**32 - 1
"""The largest seed of NumPy."""

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value: --set stages.0.training.learning_rate=1e-4"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the output folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the output folder.")]
Method = Annotated[
    str | None,
    typer.Option(
        help="Method, with all its stages; `limbeck methods` lists them.",
        rich_help_panel=RUN_PANEL,
        autocompletion=complete(METHODS),
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, cuda:1 …; auto: the accelerator where there is one.",
        rich_help_panel=MEASURING_PANEL,
        autocompletion=complete(("auto", "cpu", "cuda")),
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing but the result and errors.", rich_help_panel=RESULT_PANEL),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Say versions, device and choices such as kernels too.", rich_help_panel=RESULT_PANEL
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, alone.", rich_help_panel=RESULT_PANEL)]


Command = TypeVar("Command", bound=Callable[..., None])
EPILOGS: dict[Callable[..., None], str] = {}
"""The end of each command's help, by its function."""


def examples(*lines: str) -> str:
    """Return the end of a command's help: each example in a paragraph of its own, to be copied as it is."""
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *map(escape, lines)])


def with_examples(*lines: str) -> Callable[[Command], Command]:
    """Give a command the examples at the end of its help; arguments as of `examples`."""

    def add(command: Command) -> Command:
        EPILOGS[command] = examples(*lines)
        return command

    return add


def parse_numbers(option: str, text: str) -> list[int]:
    """Read whole numbers from 1 to `MOST`, separated by commas.

    Raises:
        RecipeError: for anything else.
    """
    from limbeck.errors import RecipeError

    parts = [part.strip() for part in text.split(",")]
    # Digits are counted first: Python refuses to read thousands of them.
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and 0 < int(part) <= MOST for part in parts):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise RecipeError(f"{option} '{shown}' has to be whole numbers from 1 to {MOST:,}, by commas: 128,512.")
    return [int(part) for part in parts]


RecipeFile = Annotated[
    Path | None, typer.Argument(help="The recipe (YAML) of the run that is searched for.", show_default=False)
]
Teacher = Annotated[
    str | None, typer.Option(help="Folder, Hub name or package:NAME of the teacher.", rich_help_panel=RUN_PANEL)
]
Student = Annotated[
    str | None,
    typer.Option(
        help='Shape of the student: "4x312" or a preset.', rich_help_panel=RUN_PANEL, autocompletion=complete(STUDENTS)
    ),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(help="File, folder, glob, hub:NAME or installed-docs; may be repeated.", rich_help_panel=RUN_PANEL),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Blocks a step and device, in every stage.", rich_help_panel=TRAINING_PANEL)
]
LearningRate = Annotated[
    float | None, typer.Option(help="Peak learning rate of every stage.", rich_help_panel=TRAINING_PANEL)
]
Length = Annotated[int | None, typer.Option(help="Longest block in tokens.", rich_help_panel=TRAINING_PANEL)]
Seed = Annotated[int | None, typer.Option(help="Seed of the run and of the search.", rich_help_panel=TRAINING_PANEL)]


def base_recipe(recipe: Path | None, overrides: list[str] | None, *, output: Path, **options: Any) -> dict[str, Any]:
    """Return the recipe of the run that is searched for; its own output is the file's, or a folder in the search's.

    Args:
        recipe: The file, if any.
        overrides: `path.to.key=value` each; they win.
        output: The search's folder.
        **options: The options that describe the run; None where not given.

    Raises:
        RecipeError: if neither a file nor enough options are given, or for an override that cannot be read.
    """
    from limbeck.cli.distill import recipe_data
    from limbeck.recipe.load import apply_overrides

    own_place = str(output / "run")
    data = recipe_data(recipe, output=own_place if recipe is None else None, **options)
    data = apply_overrides(data, overrides or [])
    return {**data, "output": data.get("output") or own_place}


def parse_layers(option: str, text: str) -> list[int]:
    """Read layers such as `1-8,10`.

    Raises:
        RecipeError: for anything else.
    """
    from limbeck.errors import RecipeError

    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        ends = (first, last) if dash else (first, first)
        # Three digits: no teacher is deeper, and a range of billions would take all memory.
        if not all(end.isascii() and end.isdigit() and len(end) <= 3 for end in ends) or int(ends[0]) > int(ends[1]):
            raise RecipeError(f"{option} '{text}' cannot be read; give layers and ranges by commas, such as 1-8,10.")
        found |= dict.fromkeys(range(int(ends[0]), int(ends[1]) + 1))
    return list(found)


def parse_multiples(option: str, text: str) -> list[float]:
    """Read numbers above 0, whole or not, separated by commas.

    Raises:
        RecipeError: for anything else.
    """
    from limbeck.errors import RecipeError

    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < number < 1000 for number in found):
        raise RecipeError(f"{option} '{text}' has to be numbers above 0, separated by commas: 2,4.")
    return [int(number) if number.is_integer() else number for number in found]
