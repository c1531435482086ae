"""The requests of the three searches, whose fields are the options of `limbeck search`: each is described here once.

Nothing heavy is imported, so that a help is shown at once; `limbeck.search.engine.Search` plans a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

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
    """How a field of a request is given on the command line; it annotates the field.

    Args:
        help: Its line in the help.
        panel: Its panel there; None for the first.
        given: Default of the command line; by default the field's.
        name: Parameter of the command; empty for the field's name.
        flag: The option itself; empty for the parameter's name with hyphens.
        metavar: Stands for the value in the help.
        reads: How its text becomes the field's value: as `numbers`, `multiples`, `layers` or a `count`.
        most: Upper bound of a number that is at least 1.
        bounds: Bounds that the command line holds itself.
        after: The option that it follows in the help; empty for the one before it in the request.
        kind: Its type on the command line; `options_of` sets it.
    """

    help: str
    panel: str | None = None
    given: Any = _FIELD
    name: str = ""
    flag: str = ""
    metavar: str | None = None
    reads: str = ""
    most: int | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    after: str = ""
    kind: Any = str


@dataclass(frozen=True)
class Part:
    """A field of a request that several options make; it annotates the field.

    Args:
        kind: The dataclass whose fields are the options.
        make: Makes the field's value of theirs; by default the dataclass.
        changes: What is different about an option in this request, by field.
    """

    kind: type
    make: Callable[..., Any] | None = None
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _notes(request: Any) -> dict[str, tuple[Any, Option | Part | None]]:
    """The type of each field and what annotates it."""
    # These are not imported, and no option has them for a type.
    hints = get_type_hints(request, localns={"Recipe": Any, "MeasuresSpec": Any}, include_extras=True)
    found: dict[str, tuple[Any, Option | Part | None]] = {}
    for one in fields(request):
        hint = hints[one.name]
        found[one.name] = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    return found


def options_of(request: Any, changes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Option]:
    """Return the options of a request's command, with their types and defaults, by the command's parameters."""
    found: dict[str, Option] = {}
    for one in fields(request):
        kind, note = _notes(request)[one.name]
        if isinstance(note, Part):
            found |= options_of(note.kind, note.changes)
        elif note is not None:
            note = replace(note, **(changes or {}).get(one.name, {}))
            if NoneType in get_args(kind):
                kind = get_args(kind)[0]
            if note.reads or get_origin(kind) is Literal:
                kind = str
            given = one.default if note.given is _FIELD else note.given
            found[note.name or one.name] = replace(note, given=given, kind=kind)
    return found


Request = TypeVar("Request")


def make_request(request: Callable[..., Request], values: Mapping[str, Any]) -> Request:
    """Make a request of its command's values.

    Args:
        request: The dataclass.
        values: By the command's parameters, read; of a field that is no option by the field.
    """
    return request(**_field_values(request, values))


def _field_values(request: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (_, note) in _notes(request).items():
        if isinstance(note, Part):
            found[name] = (note.make or note.kind)(**_field_values(note.kind, values))
        else:
            found[name] = values[note.name if note is not None and note.name else name]
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
        for flag, most, value in _given(self):
            if most is not None and value is not None:
                _check_count(flag, value, most)
        share = self.proxy.share
        if not 0 < share <= 1:
            raise RecipeError(f"--share {share} is no share of the corpus; give more than 0 and at most 1.")
        if not self.proxy.name.strip():
            raise RecipeError("--name is empty; give the study a name, or leave it out.")


def _given(request: Any) -> Iterator[tuple[str, int | None, Any]]:
    """Each option of a request with its upper bound and value."""
    for name, (_, note) in _notes(type(request)).items():
        value = getattr(request, name)
        if isinstance(note, Option):
            yield note.flag or f"--{(note.name or name).replace('_', '-')}", note.most, value
        elif isinstance(note, Part) and isinstance(value, note.kind):
            yield from _given(value)


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
    output: Annotated[Path, Option("The search's folder; the same command goes on in it.", metavar="DIR")]
    name: Annotated[str, Option("Name of the study in the storage.", STUDY)]
    steps: Annotated[
        int | None,
        Option(
            "Steps of every candidate, in every stage; default: the recipe's. What is found keeps those.",
            TRAINING,
            most=MOST_STEPS,
        ),
    ] = None
    share: Annotated[float, Option("Share of the corpus that candidates are trained on.", TRAINING)] = 1.0
    storage: Annotated[
        str | None,
        Option("Journal file or database URL that workers share; default: search.journal in the output.", STUDY),
    ] = None

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


Workers: TypeAlias = Annotated[
    int, Option("Processes that search side by side on this machine; one a GPU.", STUDY, most=MOST_WORKERS)
]
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

    population: Annotated[
        int, Option("Mappings in a generation; default: the paper's, 12 up to 4 layers, else 20.", GENETIC, given=None)
    ] = 12
    parents: Annotated[
        Parents,
        Option(
            "Who breeds: `generation`, the last one, as in the paper; `best`, the best of all so far, with new "
            "children only, which costs a whole generation each time and found more in as many (docs/search.md).",
            GENETIC,
        ),
    ] = "generation"
    elite: Annotated[int, Option("Best of a generation that go on unchanged; the paper keeps none.", GENETIC)] = 0
    crossover: Annotated[float, Option("How likely a pair of parents is crossed (p_C).", GENETIC)] = 0.2
    exchange: Annotated[float, Option("How likely a crossed pair exchanges each layer (q_C).", GENETIC)] = 0.2
    mutation: Annotated[float, Option("How likely a child is mutated (p_M).", GENETIC)] = 0.8
    flip: Annotated[float, Option("How likely a mutated child flips each bit (q_M).", GENETIC)] = 0.05

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

    tasks: Annotated[
        str | None,
        Option(
            "Proxy tasks by commas; with --data the paper's sst2,mnli,squad. Without tasks, and with `none`, "
            "held-out text decides, which needs no labels.",
            SCORES,
        ),
    ] = None
    data: Annotated[
        str | None, Option("Folder with the tasks' files, or `hub`; default with tasks: hub.", SCORES, metavar="DIR")
    ] = None
    preset: Annotated[str, Option("Protocol of the fine-tuning, as `limbeck evaluate` has it.", SCORES)] = "quick"
    seeds: Annotated[int, Option("Fine-tunings of every student on every task.", SCORES)] = 1
    settings: Annotated[
        list[str] | None,
        Option("Override the protocol: --set-task mnli.epochs=1", SCORES, flag="--set-task", metavar="SETTING=VALUE"),
    ] = None

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

    proxy: Annotated[ProxyRequest, Part(ProxyRequest, None, {"name": {"given": "mapping"}, "share": {"given": 0.1}})]
    generations: Annotated[
        int,
        Option("Generations in all; a finished search goes on where they are more.", GENETIC, most=MOST_TRIALS),
    ] = 5
    genetic: Annotated[Mapping[str, Any], Part(GeneticSettings, _given_only)] = field(default_factory=dict)
    teacher_layers: Annotated[
        tuple[int, ...] | None,
        Option("Teacher layers that may be learned from: 1-8,10.", GENETIC, reads="layers", metavar="LAYERS"),
    ] = None
    measures: Annotated[MeasuresSpec, Part(ProxyTasks, task_measures)] = field(
        default_factory=lambda: task_measures("none")
    )
    batch: Annotated[
        int | None,
        Option(
            "Students that a worker trains at once under one teacher; default: its part of a generation.",
            STUDY,
            most=MOST_TRIALS,
        ),
    ] = None
    workers: Workers = 1


@dataclass(frozen=True)
class ShapeSizes:
    """The sizes that a student's shape has one of each of."""

    layers: Annotated[
        tuple[int, ...],
        Option("Numbers of layers to choose from, by commas: 3,4,6.", SHAPES, reads="numbers", after="output"),
    ]
    hidden: Annotated[
        tuple[int, ...], Option("Hidden widths to choose from, by commas: 192,312,384.", SHAPES, reads="numbers")
    ]
    heads: Annotated[
        tuple[int, ...],
        Option("Numbers of heads to choose from, by commas: 6,12.", SHAPES, given="12", reads="numbers"),
    ]
    ffn: Annotated[
        tuple[float, ...],
        Option(
            "Feed-forward widths to choose from, as multiples of the hidden width: 2,4.",
            SHAPES,
            given="4",
            reads="multiples",
        ),
    ]


@dataclass(frozen=True)
class ShapeLimits:
    """What a student may be at most: parameters of its encoder, and its latency as a share of its teacher's."""

    parameters: Annotated[
        int | None,
        Option(
            "Most parameters of the student's encoder: 30M.",
            SHAPES,
            name="max_parameters",
            reads="count",
            metavar="COUNT",
            after="share",
        ),
    ] = None
    latency_share: Annotated[
        float | None,
        Option("Longest latency, as a share of the teacher's: 0.5.", SHAPES, name="max_latency_share"),
    ] = None


@dataclass(frozen=True)
class MeasuringRequest:
    """How latencies are to be measured; see `limbeck.search.latency.LatencySetting`."""

    device: Annotated[str, Option("cpu, cuda, cuda:1 …; auto: the accelerator where there is one.", MEASURING)] = "auto"
    length: Annotated[
        int | None,
        Option(
            "Tokens a text for the latency; default: 128, or all that the teacher takes.",
            MEASURING,
            name="measure_length",
            most=MOST_TRIALS,
        ),
    ] = None
    batch: Annotated[
        int, Option("Texts a pass for the latency.", MEASURING, name="measure_batch", most=MOST_TRIALS)
    ] = 1
    seconds: Annotated[
        float,
        Option("Time for the latency of each shape.", MEASURING, name="measure_seconds", bounds=(0.0, LONGEST_SECONDS)),
    ] = 4.0


@dataclass(frozen=True)
class ArchitectureRequest(SearchRequest):
    """A search for a student's shape."""

    proxy: Annotated[ProxyRequest, Part(ProxyRequest, None, {"name": {"given": "architecture"}})]
    sizes: Annotated[ShapeSizes, Part(ShapeSizes)]
    limits: Annotated[ShapeLimits, Part(ShapeLimits)] = field(default_factory=ShapeLimits)
    measuring: Annotated[MeasuringRequest, Part(MeasuringRequest)] = field(default_factory=MeasuringRequest)
    trials: Annotated[
        int, Option("Shapes to train in all; a finished search goes on with more.", STUDY, most=MOST_TRIALS)
    ] = 24
    sampler: Annotated[str, Option("Optuna's sampler: tpe, random, nsga2, gp.", STUDY)] = "tpe"
    batch: Annotated[int, Option("Shapes that a worker trains at once under one teacher.", STUDY, most=MOST_TRIALS)] = 4
    prune: Annotated[bool, Option("Stop shapes whose reward on the way is below the median of the others.", STUDY)] = (
        True
    )
    workers: Workers = 1


@dataclass(frozen=True)
class Halving:
    """Of how many candidates one goes on after each round, as the command line says it."""

    halving: Annotated[int | None, Option("Of how many candidates one goes on after each round; default: 2.", RACE)] = (
        None
    )
    no_halving: Annotated[bool, Option("Train every candidate to the end.", RACE, flag="--no-halving")] = False


def _read_halving(halving: int | None, no_halving: bool) -> int | None:
    if no_halving and halving is not None:
        raise RecipeError(f"--halving {halving} and --no-halving contradict each other; give one of them.")
    return None if no_halving else 2 if halving is None else halving


_STEPS = "Steps of a candidate that is never dropped; default: the recipe's. What is found keeps those."


@dataclass(frozen=True)
class TeacherLayerRequest(SearchRequest):
    """A search for the teacher layer to learn from; `halving` None trains all candidates to the end."""

    proxy: Annotated[
        ProxyRequest,
        Part(ProxyRequest, None, {"name": {"given": "teacher-layer"}, "steps": {"help": _STEPS, "panel": RACE}}),
    ]
    layers: Annotated[
        tuple[int, ...] | None,
        Option("Teacher layers to choose from: 6-12 or 4,8,10-12; default: all.", RACE, reads="layers", after="method"),
    ] = None
    steps_total: Annotated[
        int | None,
        Option("Steps of all candidates together, in place of --steps.", RACE, most=MOST_STEPS, after="steps"),
    ] = None
    halving: Annotated[int | None, Part(Halving, _read_halving)] = 2
