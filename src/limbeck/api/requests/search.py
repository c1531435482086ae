"""The options of `limbeck search` and `limbeck.search`: those of all searches, and those of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.requests import shared, values
from limbeck.api.requests.completions import PROTOCOLS, TASKS, complete, complete_list
from limbeck.api.requests.fields import MEASURING, TRAINING, option, request
from limbeck.api.requests.shared import LONGEST_SECONDS
from limbeck.search.requests import SAMPLERS, parse_count

if TYPE_CHECKING:
    from limbeck.recipe.schema import Recipe
else:
    Recipe = Any  # Importing it takes long, and a request does not look into it.

# Panels of the helps.
GENETIC = "The genetic search"
SCORES = "What candidates are scored by"
SHAPES = "Shapes and limits"
RACE = "The race"
STUDY = "The study"


def _count(name: str, value: Any) -> int | None:
    """Read a number of parameters such as `30M`; None for None."""
    if value is None:
        return None
    return parse_count(name, str(value))


@request
class SearchRequest:
    """The run that a search is for, the share of text and steps that its candidates get, and the study."""

    recipe: Recipe | Mapping[str, Any] | str | Path | None = shared.recipe_argument(
        "Recipe (YAML) of the run for which the search finds a setting.",
        "Of the run to search for, as `distill` takes it.",
    )
    overrides: str | Sequence[str] = shared.overrides_option()
    _: KW_ONLY
    output: str | Path = option(
        "Folder of the search; run the same command again to continue a search there.", cls=Path, metavar="DIR"
    )
    teacher: Any = shared.teacher_option()
    student: Any = shared.student_option()
    corpus: Any = shared.corpus_option()
    text_column: str | None = shared.text_column_option()
    label_column: str | None = shared.label_column_option()
    method: Any = shared.method_option()
    steps: int | None = option(
        "Steps of every candidate, in every stage; default: the recipe's. A recipe file keeps its own steps; a run "
        "described by options gets these.",
        default=None,
        panel=TRAINING,
    )
    batch_size: int | None = option(
        "Blocks, rows or queries per step and device, in every stage.", default=None, panel=TRAINING
    )
    learning_rate: float | None = option("Peak learning rate of every stage.", default=None, panel=TRAINING)
    length: int | None = option("Longest block in tokens.", default=None, panel=TRAINING)
    seed: int | None = option("Seed of the run and of the search.", default=None, panel=TRAINING)
    share: float = option("Share of the corpus that candidates are trained on.", default=1.0, panel=TRAINING)
    storage: str | None = option(
        "Journal file or database URL that workers share; default: search.journal in the output.",
        default=None,
        panel=STUDY,
    )
    name: str = option("Name of the study in the storage.", default="search", panel=STUDY)
    console: Console | None = shared.console_option()


@request
class MappingRequest(SearchRequest):
    """A search for a layer mapping; the paper's share of the corpus is 0.1."""

    _: KW_ONLY
    share: float = option("Share of the corpus that candidates are trained on.", default=0.1, panel=TRAINING)
    name: str = option("Name of the study in the storage.", default="mapping", panel=STUDY)
    generations: int = option(
        "Total generations; a larger number continues a finished search.", default=5, panel=GENETIC
    )
    population: int | None = option(
        "Mappings in a generation; default: the paper's, 12 for students of up to 4 layers, otherwise 20.",
        default=None,
        panel=GENETIC,
    )
    parents: str = option(
        "`generation`: the previous generation (the paper); `best`: the best so far, with new children only, so that "
        "every generation is evaluated in full (docs/search.md compares them).",
        default="generation",
        panel=GENETIC,
        complete=complete(("generation", "best")),
    )
    elite: int = option(
        "Number of best mappings that are carried over unchanged; the paper keeps none.", default=0, panel=GENETIC
    )
    crossover: float = option("Probability that a pair of parents is crossed (p_C).", default=0.2, panel=GENETIC)
    exchange: float = option("Probability that a crossed pair exchanges a layer (q_C).", default=0.2, panel=GENETIC)
    mutation: float = option("Probability that a child is mutated (p_M).", default=0.8, panel=GENETIC)
    flip: float = option("Probability that a mutated child flips a bit (q_M).", default=0.05, panel=GENETIC)
    teacher_layers: tuple[int, ...] | None = option(
        "Teacher layers that may be learned from: 1-8,10.",
        default=None,
        cls=str,
        metavar="LAYERS",
        panel=GENETIC,
        reads=values.layers,
    )
    tasks: str | None = option(
        "Proxy tasks, separated by commas; default: none, held-out text decides; or the paper's sst2,mnli,squad if "
        "--data is given.",
        default=None,
        cls=str,
        panel=SCORES,
        complete=complete_list(("none", *TASKS)),
        reads=values.optional_commas,
    )
    data: str | Path | None = option(
        "Folder with the tasks' files, or `hub`; default with tasks: hub.",
        default=None,
        cls=str,
        metavar="DIR",
        panel=SCORES,
    )
    preset: str = option(
        "Protocol of the fine-tuning: a preset of `limbeck evaluate`.",
        default="quick",
        panel=SCORES,
        complete=complete(PROTOCOLS),
    )
    seeds: int = option("Number of seeds per student and task.", default=1, panel=SCORES)
    settings: tuple[str, ...] = option(
        "Override the protocol: --set-task mnli.epochs=1",
        default=(),
        cls=list[str],
        flag="--set-task",
        metavar="SETTING=VALUE",
        panel=SCORES,
        reads=values.texts,
    )
    batch: int | None = option(
        "Candidates that a worker trains at once under one teacher; default: its share of a generation.",
        default=None,
        panel=STUDY,
    )
    workers: int = option("Processes that search side by side on this machine; one per GPU.", default=1, panel=STUDY)


@request
class ArchitectureRequest(SearchRequest):
    """A search for a student's shape."""

    _: KW_ONLY
    name: str = option("Name of the study in the storage.", default="architecture", panel=STUDY)
    layers: tuple[int, ...] = option(
        "Numbers of layers to choose from, separated by commas: 3,4,6.",
        cls=str,
        panel=SHAPES,
        reads=values.numbers,
    )
    hidden: tuple[int, ...] = option(
        "Hidden widths to choose from, separated by commas: 192,312,384.",
        cls=str,
        panel=SHAPES,
        reads=values.numbers,
    )
    heads: tuple[int, ...] = option(
        "Numbers of heads to choose from, separated by commas: 6,12.",
        default=(12,),
        cls=str,
        panel=SHAPES,
        reads=values.numbers,
    )
    ffn: tuple[int | float, ...] = option(
        "Feed-forward widths to choose from, as multiples of the hidden width: 2,4.",
        default=(4,),
        cls=str,
        panel=SHAPES,
        reads=values.multiples,
    )
    max_parameters: int | None = option(
        "Most parameters that the student's encoder may have: 30M.",
        default=None,
        cls=str,
        metavar="COUNT",
        panel=SHAPES,
        reads=_count,
    )
    max_latency_share: float | None = option(
        "Longest latency, as a share of the teacher's, such as 0.5.", default=None, panel=SHAPES
    )
    device: str = option("cpu, cuda, cuda:1 …; auto: the accelerator where there is one.", default="auto")
    measure_length: int | None = option(
        "Text length for the latency, in tokens; default: 128, or all that the teacher takes.",
        default=None,
        panel=MEASURING,
    )
    measure_batch: int = option("Batch size for the latency.", default=1, panel=MEASURING)
    measure_seconds: float = option(
        "Time for the latency of each shape.", default=4.0, least=0.0, most=LONGEST_SECONDS, panel=MEASURING
    )
    loss: str = option(
        "`normalised`: the share of the teacher's last layer left unexplained, 1 for an untrained student; "
        "`hidden_states`: the comparative study's L_HS (equation 6), summed over the taught layers.",
        default="normalised",
        panel=SCORES,
        complete=complete(("normalised", "hidden_states")),
    )
    trials: int = option("Total shapes to train; a larger number continues a finished search.", default=24, panel=STUDY)
    sampler: str = option(
        "Optuna's tpe, random, nsga2 or gp; or kd_nas, the controller of KD-NAS.",
        default="tpe",
        panel=STUDY,
        complete=complete(SAMPLERS),
    )
    episode: int | None = option(
        "Number of shapes in an episode of kd_nas. The first episode is drawn at random, then 5 % less with each "
        "episode, down to 5 %. Default: 1; the paper uses 20.",
        default=None,
        panel=STUDY,
    )
    batch: int = option("Shapes that a worker trains at once under one teacher.", default=4, panel=STUDY)
    prune: bool = option(
        "Stop shapes early whose reward so far is below the median of the others.", default=True, panel=STUDY
    )
    workers: int = option("Processes that search side by side on this machine; one per GPU.", default=1, panel=STUDY)


@request
class TeacherLayerRequest(SearchRequest):
    """A search for the teacher layer to learn from."""

    _: KW_ONLY
    name: str = option("Name of the study in the storage.", default="teacher-layer", panel=STUDY)
    steps: int | None = option(
        "Steps of a candidate that is never dropped; default: the recipe's, which the result keeps.",
        default=None,
        panel=RACE,
    )
    layers: tuple[int, ...] | None = option(
        "Teacher layers to choose from: 6-12 or 4,8,10-12; default: all.",
        default=None,
        cls=str,
        panel=RACE,
        reads=values.layers,
    )
    steps_total: int | None = option("Steps of all candidates together, in place of --steps.", default=None, panel=RACE)
    halving: int | None = option(
        "Keep one in this many candidates after each round; default: 2.", default=None, panel=RACE
    )
    no_halving: bool = option("Train every candidate to the end.", default=False, panel=RACE)


SEARCHES: Mapping[str, type[SearchRequest]] = {
    "mapping": MappingRequest,
    "architecture": ArchitectureRequest,
    "teacher-layer": TeacherLayerRequest,
}
"""Kinds of searches by the names of their commands."""
