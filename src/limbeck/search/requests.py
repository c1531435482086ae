# ruff: noqa: RUF009 (`option` and `part` return dataclass fields)
"""The requests of the three searches, whose fields are the options of `limbeck search`: each is described here once.

Nothing heavy is imported, so that a help is shown at once; `limbeck.search.engine.Search` plans a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from limbeck.errors import RecipeError, suggestion

if TYPE_CHECKING:
    from limbeck.comparison.plan import MeasuresSpec
    from limbeck.recipe.schema import Recipe

JOURNAL = "search.journal"
MOST_STEPS = 10**9
MOST_TRIALS = 10**6
"""Of trials, generations, and what else is counted beside steps."""
MOST_WORKERS = 1024
LONGEST_SECONDS = 86_400
"""The most time for a measurement: a day."""
PAPER_TASKS = ("sst2", "mnli", "squad")
"""ELM's proxy tasks (arXiv 2012.06153, section 5.2)."""

TRAINING, GENETIC, SCORES = "Training", "The genetic search", "What candidates are scored by"
SHAPES, MEASURING, RACE, STUDY = "Shapes and limits", "Measuring", "The race", "The study"

_FIELD: Any = object()


@dataclass(frozen=True)
class Option:
    """A field of a request as an option of the command.

    Args:
        help: Its line in the help.
        panel: Its panel there; None for the first.
        default: On the command line; `MISSING` if it has to be given.
        kind: Its type on the command line.
        name: Parameter of the command; empty for the field's name.
        flag: The option itself; empty for the parameter's name with hyphens.
        metavar: Stands for the value in the help.
        reads: How its text becomes the field's value: as `numbers`, `multiples`, `layers` or a `count`.
        most: Upper bound of a number that is at least 1.
        bounds: Bounds that the command line holds itself.
        after: The option that it follows in the help; empty for the one before it in the request.
    """

    help: str
    panel: str | None
    default: Any
    kind: type = str
    name: str = ""
    flag: str = ""
    metavar: str | None = None
    reads: str = ""
    most: int | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    after: str = ""


@dataclass(frozen=True)
class Part:
    """A field of a request that several options make.

    Args:
        kind: The dataclass whose fields are the options.
        make: Makes the field's value of theirs.
        changes: What is different about an option in this request, by field.
    """

    kind: type
    make: Callable[..., Any]
    changes: Mapping[str, Mapping[str, Any]]


def option(text: str, panel: str | None = None, default: Any = MISSING, *, given: Any = _FIELD, **more: Any) -> Any:
    """Return a field that is an option; `given` is the default of the command line where the field has another."""
    described = Option(text, panel, default if given is _FIELD else given, **more)
    return field(default=default, metadata={"option": described})


def part(kind: type, make: Callable[..., Any] | None = None, *, default: Any = MISSING, **changes: Any) -> Any:
    """Return a field that the options of another dataclass make."""
    metadata = {"part": Part(kind, make or kind, changes)}
    return field(metadata=metadata) if default is MISSING else field(default_factory=default, metadata=metadata)


def options_of(request: type, changes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Option]:
    """Return the options of a request's command by the command's parameters."""
    found: dict[str, Option] = {}
    for one in fields(request):
        if "part" in one.metadata:
            found |= options_of(one.metadata["part"].kind, one.metadata["part"].changes)
        elif "option" in one.metadata:
            described = replace(one.metadata["option"], **(changes or {}).get(one.name, {}))
            found[described.name or one.name] = described
    return found


Request = TypeVar("Request")


def make_request(request: Callable[..., Request], values: Mapping[str, Any]) -> Request:
    """Make a request, or a part of one, of its command's values.

    Args:
        request: The dataclass, or what a part makes of its options.
        values: By the command's parameters, read; what the dataclass does not describe as an option by the field.
    """
    return request(**_field_values(request, values))


def _field_values(request: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in fields(request):
        if "part" in one.metadata:
            made: Part = one.metadata["part"]
            found[one.name] = made.make(**_field_values(made.kind, values))
        else:
            name = one.metadata["option"].name if "option" in one.metadata else ""
            found[one.name] = values[name or one.name]
    return found


class SearchRequest:
    """What the requests of all searches have in common.

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
        for name, described, value in _described(self):
            if described.most is not None and value is not None:
                _check_count(described.flag or f"--{name.replace('_', '-')}", value, described.most)
        share = self.proxy.share
        if not 0 < share <= 1:
            raise RecipeError(f"--share {share} is no share of the corpus; give more than 0 and at most 1.")
        if not self.proxy.name.strip():
            raise RecipeError("--name is empty; give the study a name, or leave it out.")


def _described(request: Any) -> Iterator[tuple[str, Option, Any]]:
    for one in fields(request):
        value = getattr(request, one.name)
        if "option" in one.metadata:
            yield one.metadata["option"].name or one.name, one.metadata["option"], value
        elif isinstance(value, one.metadata["part"].kind if "part" in one.metadata else ()):
            yield from _described(value)


def _check_count(flag: str, value: float, most: int) -> None:
    if value < 1:
        raise RecipeError(f"{flag} {value} leaves nothing to do; give 1 or more.")
    if value > most:
        work = "training" if most == MOST_STEPS else "search"
        raise RecipeError(f"{flag} {value} is more than any {work} takes; give at most {most:,}.")


@dataclass(frozen=True)
class ProxyRequest:
    """The run that is searched for, the share of text and steps that its candidates get, and the study."""

    recipe: Recipe
    output: Path = option("The search's folder; the same command goes on in it.", kind=Path, metavar="DIR")
    name: str = option("Name of the study in the storage.", STUDY)
    steps: int | None = option(
        "Steps of every candidate, in every stage; default: the recipe's. What is found keeps those.",
        TRAINING, None, kind=int, most=MOST_STEPS,
    )  # fmt: skip
    share: float = option("Share of the corpus that candidates are trained on.", TRAINING, 1.0, kind=float)
    storage: str | None = option(
        "Journal file or database URL that workers share; default: search.journal in the output.", STUDY, None
    )

    @property
    def place(self) -> str:
        """The storage."""
        return self.storage or str(self.output.expanduser() / JOURNAL)

    @property
    def proxy_recipe(self) -> Recipe:
        """The recipe of the candidates: as searched for, with the steps that are asked for."""
        from limbeck.recipe.load import load_recipe

        if self.steps is None:
            return self.recipe
        stages = range(len(self.recipe.stages))
        return load_recipe(self.recipe, [f"stages.{index}.training.max_steps={self.steps}" for index in stages])


def _workers() -> Any:
    text = "Processes that search side by side on this machine; one a GPU."
    return option(text, STUDY, 1, kind=int, most=MOST_WORKERS)


Parents: TypeAlias = Literal["generation", "best"]
_PROBABILITIES = ("crossover", "exchange", "mutation", "flip")


@dataclass(frozen=True)
class GeneticSettings:
    """The parameters of ELM's genetic algorithm; the defaults are the paper's.

    Parents `generation`, the paper's, are the last generation, and children that were evaluated before come back with
    the value they have. Parents `best`, ours, are the S best genomes of all generations, and every child is new, so
    that a generation always costs S evaluations.

    Raises:
        RecipeError: for a probability outside [0, 1], a population that cannot breed, an elite that does not fit, or
            unknown parents.

    Source:
        ELM (arXiv 2012.06153) algorithm 1 and section 5.2.
    """

    population: int = option(
        "Mappings in a generation; default: the paper's, 12 up to 4 layers, else 20.",
        GENETIC, 12, given=None, kind=int,
    )  # fmt: skip
    parents: Parents = option(
        "Who breeds: `generation`, the last one, as in the paper; `best`, the best of all so far, with new "
        "children only, which costs a whole generation each time and found more in as many (docs/search.md).",
        GENETIC, "generation",
    )  # fmt: skip
    elite: int = option("Best of a generation that go on unchanged; the paper keeps none.", GENETIC, 0, kind=int)
    crossover: float = option("How likely a pair of parents is crossed (p_C).", GENETIC, 0.2, kind=float)
    exchange: float = option("How likely a crossed pair exchanges each layer (q_C).", GENETIC, 0.2, kind=float)
    mutation: float = option("How likely a child is mutated (p_M).", GENETIC, 0.8, kind=float)
    flip: float = option("How likely a mutated child flips each bit (q_M).", GENETIC, 0.05, kind=float)

    def __post_init__(self) -> None:
        for name in _PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(f"{name} {getattr(self, name)} is no probability; give a number from 0 to 1.")
        if self.population < 2:
            raise RecipeError(f"A population of {self.population} cannot breed; give at least 2.")
        if not 0 <= self.elite < self.population:
            raise RecipeError(
                f"An elite of {self.elite} does not fit a population of {self.population}; give 0 to "
                f"{self.population - 1}."
            )
        if self.parents not in get_args(Parents):
            raise RecipeError(f"Unknown parents '{self.parents}'.{suggestion(self.parents, get_args(Parents))}")
        if self.elite and self.parents == "best":
            raise RecipeError(
                f"An elite of {self.elite} has no place beside parents 'best', who keep the best; leave it out."
            )


@dataclass(frozen=True)
class ProxyTasks:
    """The tasks that candidates are fine-tuned on, as the command line names them."""

    tasks: str | None = option(
        "Proxy tasks by commas; with --data the paper's sst2,mnli,squad. Without tasks, and with `none`, "
        "held-out text decides, which needs no labels.",
        SCORES, None,
    )  # fmt: skip
    data: str | None = option(
        "Folder with the tasks' files, or `hub`; default with tasks: hub.", SCORES, None, metavar="DIR"
    )
    preset: str = option("Protocol of the fine-tuning, as `limbeck evaluate` has it.", SCORES, "quick")
    seeds: int = option("Fine-tunings of every student on every task.", SCORES, 1, kind=int)
    settings: Sequence[str] | None = option(
        "Override the protocol: --set-task mnli.epochs=1",
        SCORES, None, kind=list[str], flag="--set-task", metavar="SETTING=VALUE",
    )  # fmt: skip

    def measures(self) -> MeasuresSpec:
        """Return what candidates are fine-tuned on: without names the paper's tasks where `data` is given.

        Raises:
            RecipeError: for an unknown protocol, no fine-tuning, settings that cannot be read, or those of no task.
        """
        from limbeck.comparison.plan import MeasuresSpec
        from limbeck.evaluation.protocols import PROTOCOLS
        from limbeck.recipe.load import apply_overrides

        tasks = self.tasks if self.tasks is not None else ",".join(PAPER_TASKS) if self.data is not None else "none"
        none = tasks.strip().lower() == "none"
        names = [] if none else [name.strip() for name in tasks.split(",") if name.strip()]
        if not names and not none:
            raise RecipeError("--tasks names no task; give some by commas, or none for held-out text.")
        if not names and self.settings:
            raise RecipeError("--set-task changes how tasks are fine-tuned, and there is none; give --tasks or --data.")
        if self.seeds < 1:
            raise RecipeError(f"--seeds is {self.seeds}; give 1 or more.")
        settings = apply_overrides({}, self.settings or ())
        preset = PROTOCOLS[self.preset].name
        return MeasuresSpec(tasks=names, data=self.data, preset=preset, seeds=self.seeds, settings=settings)


def task_measures(tasks: str | None, **more: Any) -> MeasuresSpec:
    """Return what candidates are fine-tuned on; arguments as of `ProxyTasks`."""
    return ProxyTasks(tasks, **more).measures()


def _given_only(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class MappingRequest(SearchRequest):
    """A search for a layer mapping; the paper's share of the corpus is 0.1.

    `genetic` are the fields of `GeneticSettings` that differ from the paper's. Without tasks in `measures` held-out
    text decides. A worker trains its part of a generation at once where `batch` is None.
    """

    proxy: ProxyRequest = part(ProxyRequest, name={"default": "mapping"}, share={"default": 0.1})
    generations: int = option(
        "Generations in all; a finished search goes on where they are more.", GENETIC, 5, kind=int, most=MOST_TRIALS
    )
    genetic: Mapping[str, Any] = part(GeneticSettings, _given_only, default=dict)
    teacher_layers: tuple[int, ...] | None = option(
        "Teacher layers that may be learned from: 1-8,10.", GENETIC, None, reads="layers", metavar="LAYERS"
    )
    measures: MeasuresSpec = part(ProxyTasks, task_measures, default=lambda: task_measures("none"))
    batch: int | None = option(
        "Students that a worker trains at once under one teacher; default: its part of a generation.",
        STUDY, None, kind=int, most=MOST_TRIALS,
    )  # fmt: skip
    workers: int = _workers()


@dataclass(frozen=True)
class ShapeSizes:
    """The sizes that a student's shape has one of each of."""

    layers: tuple[int, ...] = option(
        "Numbers of layers to choose from, by commas: 3,4,6.", SHAPES, reads="numbers", after="output"
    )
    hidden: tuple[int, ...] = option("Hidden widths to choose from, by commas: 192,312,384.", SHAPES, reads="numbers")
    heads: tuple[int, ...] = option(
        "Numbers of heads to choose from, by commas: 6,12.", SHAPES, given="12", reads="numbers"
    )
    ffn: tuple[float, ...] = option(
        "Feed-forward widths to choose from, as multiples of the hidden width: 2,4.",
        SHAPES, given="4", reads="multiples",
    )  # fmt: skip


@dataclass(frozen=True)
class ShapeLimits:
    """What a student may be at most: parameters of its encoder, and its latency as a share of its teacher's."""

    parameters: int | None = option(
        "Most parameters of the student's encoder: 30M.",
        SHAPES, None, name="max_parameters", reads="count", metavar="COUNT", after="share",
    )  # fmt: skip
    latency_share: float | None = option(
        "Longest latency, as a share of the teacher's: 0.5.", SHAPES, None, name="max_latency_share", kind=float
    )


@dataclass(frozen=True)
class MeasuringRequest:
    """How latencies are to be measured; see `limbeck.search.latency.LatencySetting`."""

    device: str = option("cpu, cuda, cuda:1 …; auto: the accelerator where there is one.", MEASURING, "auto")
    length: int | None = option(
        "Tokens a text for the latency; default: 128, or all that the teacher takes.",
        MEASURING, None, name="measure_length", kind=int, most=MOST_TRIALS,
    )  # fmt: skip
    batch: int = option("Texts a pass for the latency.", MEASURING, 1, name="measure_batch", kind=int, most=MOST_TRIALS)
    seconds: float = option(
        "Time for the latency of each shape.",
        MEASURING, 4.0, name="measure_seconds", kind=float, bounds=(0.0, LONGEST_SECONDS),
    )  # fmt: skip


@dataclass(frozen=True)
class ArchitectureRequest(SearchRequest):
    """A search for a student's shape."""

    proxy: ProxyRequest = part(ProxyRequest, name={"default": "architecture"})
    sizes: ShapeSizes = part(ShapeSizes)
    limits: ShapeLimits = part(ShapeLimits, default=ShapeLimits)
    measuring: MeasuringRequest = part(MeasuringRequest, default=MeasuringRequest)
    trials: int = option(
        "Shapes to train in all; a finished search goes on with more.", STUDY, 24, kind=int, most=MOST_TRIALS
    )
    sampler: str = option("Optuna's sampler: tpe, random, nsga2, gp.", STUDY, "tpe")
    batch: int = option("Shapes that a worker trains at once under one teacher.", STUDY, 4, kind=int, most=MOST_TRIALS)
    prune: bool = option(
        "Stop shapes whose reward on the way is below the median of the others.", STUDY, True, kind=bool
    )
    workers: int = _workers()


@dataclass(frozen=True)
class Halving:
    """Of how many candidates one goes on after each round, as the command line says it."""

    halving: int | None = option(
        "Of how many candidates one goes on after each round; default: 2.", RACE, None, kind=int
    )
    no_halving: bool = option("Train every candidate to the end.", RACE, False, kind=bool, flag="--no-halving")


def _read_halving(halving: int | None, no_halving: bool) -> int | None:
    if no_halving and halving is not None:
        raise RecipeError(f"--halving {halving} and --no-halving contradict each other; give one of them.")
    return None if no_halving else 2 if halving is None else halving


@dataclass(frozen=True)
class TeacherLayerRequest(SearchRequest):
    """A search for the teacher layer to learn from, `halving` None trains all candidates to the end."""

    proxy: ProxyRequest = part(
        ProxyRequest,
        name={"default": "teacher-layer"},
        steps={
            "help": "Steps of a candidate that is never dropped; default: the recipe's. What is found keeps those.",
            "panel": RACE,
        },
    )
    layers: tuple[int, ...] | None = option(
        "Teacher layers to choose from: 6-12 or 4,8,10-12; default: all.", RACE, None, reads="layers", after="method"
    )
    steps_total: int | None = option(
        "Steps of all candidates together, in place of --steps.", RACE, None, kind=int, most=MOST_STEPS, after="steps"
    )
    halving: int | None = part(Halving, _read_halving, default=lambda: 2)
