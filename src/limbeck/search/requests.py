"""Requests of the three searches: what they search for, and the limits that are checked without torch.

Nothing heavy is imported, so that a mistake is told at once; `limbeck.search.engine.Search` plans a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from limbeck.errors import RecipeError, suggestion

if TYPE_CHECKING:
    from limbeck.evaluation.measures import MeasuresSpec
    from limbeck.recipe.schema import Recipe

JOURNAL = "search.journal"
"""The file in a search's folder that keeps its study, where no other storage is given."""
MOST_STEPS = 10**9
"""Most steps of a training."""
MOST_TRIALS = 10**6
"""Most trials, generations or other things that an option counts, apart from steps and workers."""
MOST_WORKERS = 1024
"""Most processes of a search on one machine."""
PAPER_TASKS = ("sst2", "mnli", "squad")
"""ELM's proxy tasks (arXiv 2012.06153, section 5.2)."""

# Such as 30M, 1.5 b or 30000000.
_COUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmb]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_MOST_DIGITS = 20
"""Most characters of a number of parameters; a longer one may be more than a float holds."""


def parse_count(option: str, text: str) -> int:
    """Read a number of parameters such as `30M`, `1.5b` or `30000000`.

    Args:
        option: The option, for the message.
        text: The number.

    Raises:
        RecipeError: for anything else, and for 0.
    """
    match = _COUNT.fullmatch(text.strip())
    # Text that is no number is refused as 0 is.
    count = 0
    if match is not None and len(match["number"]) <= _MOST_DIGITS:
        count = round(float(match["number"]) * _FACTORS[match["unit"].lower()])
    if count < 1:
        raise RecipeError(f"{option} '{text[:80]}' is not a number of parameters; write it like 30M, 1.5B or 30000000.")
    return count


def check_count(option: str, value: Any, most: int = MOST_TRIALS) -> None:
    """Refuse a number below 1 or above a bound; None, an option that is not given, is accepted.

    Args:
        option: The option, for messages.
        value: Its value.
        most: The largest number that is accepted.

    Raises:
        RecipeError: for such a number, or a value that is not a whole number.
    """
    if value is None:
        return
    if not isinstance(value, int):
        raise RecipeError(f"{option} {str(value)[:80]!r} is not a whole number; give 1 or more.")
    if value < 1:
        raise RecipeError(f"{option} {value} would do nothing; give 1 or more.")
    if value > most:
        work = "training" if most == MOST_STEPS else "search"
        raise RecipeError(f"{option} {value} is more than a {work} can take; give at most {most:,}.")


@dataclass(frozen=True)
class ProxyRequest:
    """The run that is searched for, its *proxy* (the share of its text and steps that candidates get), and the study.

    Attributes:
        recipe: The recipe of the run.
        output: Folder of the search; the same search, run again, continues it.
        name: Name of the study in the storage.
        steps: Steps of every candidate, in every stage; None is the recipe's.
        share: Share of the corpus that candidates are trained on, above 0 and at most 1.
        storage: Journal file or database URL that workers share; None is `search.journal` in the output.
    """

    recipe: Recipe
    output: Path
    name: str
    steps: int | None = None
    share: float = 1.0
    storage: str | None = None

    @property
    def place(self) -> str:
        """The storage: the path of a journal file, or a database URL."""
        if self.storage:
            return self.storage
        return str(self.output.expanduser() / JOURNAL)

    @property
    def proxy_recipe(self) -> Recipe:
        """The recipe of the candidates: that of the run, with `steps` in place of its own number of steps."""
        from limbeck.recipe.load import load_recipe

        if self.steps is None:
            return self.recipe
        changes = [f"stages.{index}.training.max_steps={self.steps}" for index in range(len(self.recipe.stages))]
        return load_recipe(self.recipe, changes)

    def check(self) -> None:
        """Refuse numbers that leave nothing to do, and an empty name.

        Raises:
            RecipeError: one line for the first.
        """
        check_count("--steps", self.steps, MOST_STEPS)
        if not 0 < self.share <= 1:
            raise RecipeError(f"--share {self.share} must be a share of the corpus; give a number above 0, up to 1.")
        if not self.name.strip():
            raise RecipeError("--name is empty; give the study a name, or leave --name out.")


class SearchRequest:
    """The parts that the requests of all searches have.

    Attributes:
        proxy: The run, the subset that candidates are trained on, and the study.
        workers: Processes on this machine.
    """

    proxy: ProxyRequest
    workers: int = 1

    def check(self) -> None:
        """Refuse numbers that leave nothing to do.

        Raises:
            RecipeError: one line for the first.
        """
        self.proxy.check()
        check_count("--workers", self.workers, MOST_WORKERS)


Parents: TypeAlias = Literal["generation", "best"]
"""Where parents are from; see `GeneticSettings`."""
_PROBABILITIES = ("crossover", "exchange", "mutation", "flip")


@dataclass(frozen=True)
class GeneticSettings:
    """The parameters of ELM's genetic algorithm; the defaults are the paper's.

    The paper's parents, `generation`, are the last generation. Children that were evaluated before come back with the
    value that they have. The parents `best`, which are not the paper's, are the S best mappings of all generations;
    every child is new, so that a generation always costs S evaluations.

    Attributes:
        population: Mappings in a generation, S; the paper takes 12 for students of up to 4 layers, otherwise 20.
        parents: `generation` or `best`, see above.
        elite: Number of best mappings that are carried over unchanged; the paper keeps none.
        crossover: Probability that a pair of parents is crossed (p_C).
        exchange: Probability that a crossed pair exchanges a layer (q_C).
        mutation: Probability that a child is mutated (p_M).
        flip: Probability that a mutated child flips a bit (q_M).

    Raises:
        RecipeError: for a probability outside [0, 1], a population that cannot breed, an elite that does not fit, or
            unknown parents.

    Source:
        ELM (arXiv 2012.06153) algorithm 1 and section 5.2.
    """

    population: int = 12
    parents: Parents = "generation"
    elite: int = 0
    crossover: float = 0.2
    exchange: float = 0.2
    mutation: float = 0.8
    flip: float = 0.05

    def __post_init__(self) -> None:
        """Refuse options of the genetic algorithm that do not fit each other."""
        for name in _PROBABILITIES:
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise RecipeError(f"{name} {value} is not a probability; give a number from 0 to 1.")
        if self.population < 2:
            raise RecipeError(
                f"A population of {self.population} is too small, because two parents are needed; give at least 2."
            )
        if not 0 <= self.elite < self.population:
            raise RecipeError(
                f"An elite of {self.elite} does not fit a population of {self.population}; give 0 to "
                f"{self.population - 1}."
            )
        if self.parents not in get_args(Parents):
            raise RecipeError(f"Unknown parents '{self.parents}'.{suggestion(self.parents, get_args(Parents))}")
        if self.elite > 0 and self.parents == "best":
            raise RecipeError(
                f"An elite of {self.elite} has no effect with --parents best, which always keeps the best "
                "mappings; leave --elite out."
            )


def task_measures(
    tasks: str | None,
    *,
    data: str | None = None,
    preset: str = "quick",
    seeds: int = 1,
    settings: Sequence[str] | None = None,
) -> MeasuresSpec:
    """Return the tasks that candidates are fine-tuned on.

    Args:
        tasks: Names of tasks with commas, or `none` for held-out text; None is the paper's tasks where `data` is given,
            else held-out text.
        data: Folder with the tasks' files, or `hub`.
        preset: Name of a protocol.
        seeds: Fine-tunings of every student and task.
        settings: Changes of the protocol: `setting=value` or `task.setting=value`.

    Raises:
        RecipeError: for an unknown protocol, no fine-tuning, settings that cannot be read, or those of no task.
    """
    from limbeck.evaluation.measures import MeasuresSpec
    from limbeck.evaluation.protocols.protocol import PROTOCOLS
    from limbeck.recipe.overrides import apply_overrides

    if tasks is None:
        tasks = "none" if data is None else ",".join(PAPER_TASKS)
    # Without names, candidates are scored on held-out text.
    names: list[str] = []
    has_tasks = tasks.strip().lower() != "none"
    if has_tasks:
        names = [name.strip() for name in tasks.split(",") if name.strip()]
    if has_tasks and not names:
        raise RecipeError(
            "--tasks names no task; name tasks, separated by commas, or leave --tasks out to score on held-out text."
        )
    if not names and settings:
        raise RecipeError(
            "--set-task changes how proxy tasks are fine-tuned, but there are no tasks; give --tasks or --data."
        )
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}; give 1 or more.")
    changes = apply_overrides({}, settings or ())
    return MeasuresSpec(tasks=names, data=data, preset=PROTOCOLS[preset].name, seeds=seeds, settings=changes)


def _held_out_text() -> MeasuresSpec:
    """The measures of candidates that are scored on held-out text."""
    return task_measures("none")


@dataclass(frozen=True)
class MappingRequest(SearchRequest):
    """A search for a layer mapping; candidates of the paper are trained on 0.1 of the corpus.

    Attributes:
        proxy: See `SearchRequest`.
        generations: Total generations; a larger number continues a finished search.
        genetic: The fields of `GeneticSettings` that differ from the paper's.
        teacher_layers: Teacher layers that may be learned from, from 1; None is all.
        measures: Tasks that candidates are fine-tuned on; without any, held-out text decides.
        batch: Candidates that a worker trains side by side, with one teacher for all; None is a generation divided by
            the number of workers.
        workers: See `SearchRequest`.
    """

    proxy: ProxyRequest
    generations: int = 5
    genetic: Mapping[str, Any] = field(default_factory=dict)
    teacher_layers: tuple[int, ...] | None = None
    measures: MeasuresSpec = field(default_factory=_held_out_text)
    batch: int | None = None
    workers: int = 1

    def check(self) -> None:
        """Refuse numbers that leave nothing to do.

        Raises:
            RecipeError: one line for the first.
        """
        super().check()
        check_count("--generations", self.generations)
        check_count("--batch", self.batch)


@dataclass(frozen=True)
class ShapeSizes:
    """The sizes to choose from; a student's shape has one number of each list.

    Attributes:
        layers: Numbers of layers.
        hidden: Hidden widths.
        heads: Numbers of heads.
        ffn: Feed-forward widths, as multiples of the hidden width.
    """

    layers: tuple[int, ...]
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    ffn: tuple[float, ...]


@dataclass(frozen=True)
class ShapeLimits:
    """The limits of a student.

    Attributes:
        parameters: Most parameters that its encoder may have; None is any number.
        latency_share: Longest latency, as a share of its teacher's; None is any latency.
    """

    parameters: int | None = None
    latency_share: float | None = None


@dataclass(frozen=True)
class MeasuringRequest:
    """How latencies are to be measured; see `limbeck.search.latency.LatencySetting`.

    Attributes:
        device: `cpu`, `cuda`, `cuda:1` …; `auto`: the accelerator where there is one.
        length: Text length in tokens; None is 128, or all that the teacher takes.
        batch: Texts a pass.
        seconds: Time for each shape.
    """

    device: str = "auto"
    length: int | None = None
    batch: int = 1
    seconds: float = 4.0

    def check(self) -> None:
        """Refuse numbers that leave nothing to measure.

        Raises:
            RecipeError: one line for the first.
        """
        check_count("--measure-length", self.length)
        check_count("--measure-batch", self.batch)


ShapeLoss: TypeAlias = Literal["normalised", "hidden_states"]
"""The loss that shapes are compared by: divided by that of an untrained student, or as it is printed."""
SAMPLERS = ("tpe", "random", "nsga2", "gp", "kd_nas")
"""Names of the samplers of shapes; see `limbeck.search.shape_samplers`."""


@dataclass(frozen=True)
class ArchitectureRequest(SearchRequest):
    """A search for a student's shape.

    Attributes:
        proxy: See `SearchRequest`.
        sizes: The sizes to choose from.
        limits: The largest student.
        measuring: The setting of latency measurements.
        loss: `normalised`: the share of the teacher's last layer left unexplained, 1 for an untrained student;
            `hidden_states`: the comparative study's L_HS (equation 6), summed over the taught layers.
        trials: Total shapes to train; a larger number continues a finished search.
        sampler: Optuna's `tpe`, `random`, `nsga2` or `gp`; or `kd_nas`, the controller of KD-NAS.
        episode: Shapes in an episode of `kd_nas`; None is 1, the paper's is 20.
        batch: Shapes that a worker trains side by side, with one teacher for all.
        prune: Stop shapes early whose reward so far is below the median of the others.
        workers: See `SearchRequest`.
    """

    proxy: ProxyRequest
    sizes: ShapeSizes
    limits: ShapeLimits = field(default_factory=ShapeLimits)
    measuring: MeasuringRequest = field(default_factory=MeasuringRequest)
    loss: ShapeLoss = "normalised"
    trials: int = 24
    sampler: str = "tpe"
    episode: int | None = None
    batch: int = 4
    prune: bool = True
    workers: int = 1

    def check(self) -> None:
        """Refuse numbers that leave nothing to do, an unknown sampler, and an episode of a sampler without episodes.

        Raises:
            RecipeError: one line for the first.
        """
        super().check()
        self.measuring.check()
        check_count("--trials", self.trials)
        check_count("--episode", self.episode)
        check_count("--batch", self.batch)
        if self.sampler not in SAMPLERS:
            raise RecipeError(f"Unknown sampler '{self.sampler}'.{suggestion(self.sampler, SAMPLERS)}")
        if self.episode is not None and self.sampler != "kd_nas":
            raise RecipeError(
                f"--episode {self.episode} applies only to --sampler kd_nas, not to '{self.sampler}'; leave "
                "--episode out."
            )


@dataclass(frozen=True)
class TeacherLayerRequest(SearchRequest):
    """A search for the teacher layer to learn from.

    Attributes:
        proxy: See `SearchRequest`.
        layers: Teacher layers to choose from, from 1; None is all.
        steps_total: Steps of all candidates together, in place of those of each.
        halving: One in this many candidates goes on after each round; None trains every candidate to the end.
    """

    proxy: ProxyRequest
    layers: tuple[int, ...] | None = None
    steps_total: int | None = None
    halving: int | None = 2

    def check(self) -> None:
        """Refuse numbers that leave nothing to do.

        Raises:
            RecipeError: one line for the first.
        """
        super().check()
        check_count("--steps-total", self.steps_total, MOST_STEPS)
