"""The requests of the three searches, whose fields are the options of `limbeck search`: each is described here once.

Nothing heavy is imported, so that a help is shown at once; `limbeck.search.engine.Search` plans a request.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from limbeck.core.lists import parse_layers, parse_multiples, parse_numbers
from limbeck.errors import RecipeError, suggestion

if TYPE_CHECKING:
    from limbeck.evaluation.measures import MeasuresSpec
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
_NOTE = "option"


@dataclass(frozen=True)
class Option:
    """How a field of a request is given on the command line; see `option`.

    Args:
        panel: Its panel in the help; None for the first.
        given: Default of the command line; by default the field's.
        name: Parameter of the command; empty for the field's name.
        flag: The option itself; empty for the parameter's name with hyphens.
        metavar: Stands for the value in the help.
        reads: How its text becomes the field's value: as `numbers`, `multiples`, `layers` or a `count`.
        most: Upper bound of a number that is at least 1.
        bounds: Bounds that the command line holds itself.
        after: The option that it follows in the help; empty for the one before it in the request.
        help: Its line in the help, which is that of the request's docstring; `options_of` sets it.
        kind: Its type on the command line; `options_of` sets it.
    """

    panel: str | None = None
    given: Any = _FIELD
    name: str = ""
    flag: str = ""
    metavar: str | None = None
    reads: str = ""
    most: int | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    after: str = ""
    help: str = ""
    kind: Any = str


@dataclass(frozen=True)
class Part:
    """A field of a request that several options make; see `part`.

    Args:
        kind: The dataclass whose fields are the options.
        make: Makes the field's value of theirs; by default the dataclass.
        changes: What is different about an option in this request, by field.
    """

    kind: type
    make: Callable[..., Any] | None = None
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def option(panel: str | None = None, *, default: Any = MISSING, **more: Any) -> Any:
    """Return a field that is an option; further arguments as of `Option`."""
    return field(default=default, metadata={_NOTE: Option(panel, **more)})


def part(kind: type, make: Callable[..., Any] | None = None, *, default: Any = MISSING, **more: Any) -> Any:
    """Return a field that several options make; `default` makes its default, further arguments as of `Part`."""
    return field(default_factory=default, metadata={_NOTE: Part(kind, make, **more)})


T = TypeVar("T")


@typing.dataclass_transform(frozen_default=True, field_specifiers=(option, part))
def request(cls: type[T]) -> type[T]:
    """Make a class whose fields are options a dataclass."""
    return dataclass(frozen=True)(cls)


def _notes(kind: Any) -> dict[str, Option | Part | None]:
    """The options of each field."""
    return {one.name: one.metadata.get(_NOTE) for one in fields(kind)}


def options_of(kind: Any, changes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Option]:
    """Return the options of a request's command, with their types and defaults, by the command's parameters."""
    # These are not imported, and no option has them for a type.
    types, helps = typing.get_type_hints(kind, localns={"Recipe": Any, "MeasuresSpec": Any}), _helps(kind)
    found: dict[str, Option] = {}
    for one in fields(kind):
        note = one.metadata.get(_NOTE)
        if isinstance(note, Part):
            found |= options_of(note.kind, note.changes)
        elif note is not None:
            note = replace(note, **{"help": helps.get(one.name, ""), **(changes or {}).get(one.name, {})})
            hint = types[one.name]
            hint = get_args(hint)[0] if NoneType in get_args(hint) else hint
            text = note.reads or typing.get_origin(hint) is Literal
            given = one.default if note.given is _FIELD else note.given
            found[note.name or one.name] = replace(note, given=given, kind=str if text else hint)
    return found


def _helps(kind: Any) -> dict[str, str]:
    """The attributes of a class as its docstring describes them, a line each."""
    listed = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    found = (text.partition(": ") for text in re.split(r"^ {4}(?=\w)", listed, flags=re.MULTILINE))
    return {name: " ".join(text.split()) for name, _, text in found}


def make_request(kind: Any, values: Mapping[str, Any], make: Callable[..., Any] | None = None) -> Any:
    """Make a request of its command's values.

    Args:
        kind: The dataclass.
        values: By the command's parameters, read; of a field that is no option by the field.
        make: Makes it of its fields; by default the dataclass.
    """
    found = {}
    for name, note in _notes(kind).items():
        if isinstance(note, Part):
            found[name] = make_request(note.kind, values, note.make)
        else:
            found[name] = values[name if note is None else note.name or name]
    return (make or kind)(**found)


_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmb]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def parse_count(option: str, text: str) -> int:
    """Read a number of parameters such as `30M`, `1.5b` or `30000000`.

    Args:
        option: What the number is of, for the message.
        text: The number.

    Raises:
        RecipeError: for anything else, and for 0.
    """
    found = _COUNT.fullmatch(text.strip())
    # More than twenty digits are no number of parameters, and may be more than a float holds.
    count = 0 if found is None or len(found[1]) > 20 else round(float(found[1]) * _FACTORS[found[2].lower()])
    if count < 1:
        raise RecipeError(f"{option} '{text[:80]}' is not a number of parameters; write it like 30M, 1.5B or 30000000.")
    return count


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "numbers": parse_numbers, "multiples": parse_multiples, "layers": parse_layers, "count": parse_count,
}  # fmt: skip


def _check_bounds(name: str, most: int | None, value: Any) -> None:
    if most is None or value is None:
        return
    if not isinstance(value, int):
        raise RecipeError(f"{name} {str(value)[:80]!r} is not a whole number; give 1 or more.")
    if value < 1:
        raise RecipeError(f"{name} {value} leaves nothing to do; give 1 or more.")
    if value > most:
        work = "training" if most == MOST_STEPS else "search"
        raise RecipeError(f"{name} {value} is more than any {work} takes; give at most {most:,}.")


def read_option(name: str, described: Option, value: Any) -> Any:
    """Return the value of an option as a request has it: lists of their members, or of text with commas.

    Args:
        name: What messages call the option.
        described: The option.
        value: As Python or the command line gives it.

    Raises:
        RecipeError: for text that cannot be read, and numbers out of bounds.
    """
    _check_bounds(name, described.most, value)
    if value is None or not (described.reads or described.kind == list[str]):
        return value
    members = [str(one) for one in ([value] if isinstance(value, str) or not isinstance(value, Iterable) else value)]
    found = _READERS[described.reads](name, ",".join(members)) if described.reads else members
    return tuple(found) if described.reads and isinstance(found, list) else found


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
            _check_bounds(flag, most, value)
        share = self.proxy.share
        if not 0 < share <= 1:
            raise RecipeError(f"--share {share} is not a share of the corpus; give more than 0 and at most 1.")
        if not self.proxy.name.strip():
            raise RecipeError("--name is empty; give the study a name, or leave it out.")


def _given(request: Any) -> Iterator[tuple[str, int | None, Any]]:
    """Each option of a request with its upper bound and value."""
    for name, note in _notes(type(request)).items():
        value = getattr(request, name)
        if isinstance(note, Option):
            yield note.flag or f"--{(note.name or name).replace('_', '-')}", note.most, value
        elif isinstance(note, Part) and isinstance(value, note.kind):
            yield from _given(value)


@request
class ProxyRequest:
    """The run that is searched for, the share of text and steps that its candidates get, and the study.

    Attributes:
        output: Folder of the search; the same command, run again, continues it.
        name: Name of the study in the storage.
        steps: Steps of every candidate, in every stage; default: the recipe's. A recipe file
            keeps its own steps; a run described by options gets these.
        share: Share of the corpus that candidates are trained on.
        storage: Journal file or database URL that workers share; default: search.journal in the output.
    """

    recipe: Recipe
    output: Path = option(metavar="DIR")
    name: str = option(STUDY)
    steps: int | None = option(TRAINING, most=MOST_STEPS, default=None)
    share: float = option(TRAINING, default=1.0)
    storage: str | None = option(STUDY, default=None)

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


Parents: TypeAlias = Literal["generation", "best"]
_PROBABILITIES = ("crossover", "exchange", "mutation", "flip")


@request
class GeneticSettings:
    """The parameters of ELM's genetic algorithm; the defaults are the paper's.

    Parents `generation`, the paper's, are the last generation, and children that were evaluated before come back with
    the value they have. Parents `best`, ours, are the S best genomes of all generations, and every child is new, so
    that a generation always costs S evaluations.

    Attributes:
        population: Mappings in a generation; default: the paper's, 12 for students of up to 4 layers, otherwise 20.
        parents: `generation`: the previous generation (the paper); `best`: the best so far, with new children only, so
            that every generation is evaluated in full (docs/search.md compares them).
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

    population: int = option(GENETIC, given=None, default=12)
    parents: Parents = option(GENETIC, default="generation")
    elite: int = option(GENETIC, default=0)
    crossover: float = option(GENETIC, default=0.2)
    exchange: float = option(GENETIC, default=0.2)
    mutation: float = option(GENETIC, default=0.8)
    flip: float = option(GENETIC, default=0.05)

    def __post_init__(self) -> None:
        for name in _PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(f"{name} {getattr(self, name)} is not a probability; give a number from 0 to 1.")
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
                f"An elite of {self.elite} has no place beside parents 'best', which keep the best; leave it out."
            )


@request
class ProxyTasks:
    """The tasks that candidates are fine-tuned on, as the command line names them.

    Attributes:
        tasks: Proxy tasks, separated by commas; default: none, held-out text decides; or the paper's
            sst2,mnli,squad if --data is given.
        data: Folder with the tasks' files, or `hub`; default with tasks: hub.
        preset: Protocol of the fine-tuning: a preset of `limbeck evaluate`.
        seeds: Number of seeds per student and task.
        settings: Override the protocol: --set-task mnli.epochs=1
    """

    tasks: str | None = option(SCORES, default=None)
    data: str | None = option(SCORES, metavar="DIR", default=None)
    preset: str = option(SCORES, default="quick")
    seeds: int = option(SCORES, default=1)
    settings: list[str] | None = option(SCORES, flag="--set-task", metavar="SETTING=VALUE", default=None)

    def measures(self) -> MeasuresSpec:
        """Return what candidates are fine-tuned on: without names the paper's tasks where `data` is given.

        Raises:
            RecipeError: for an unknown protocol, no fine-tuning, settings that cannot be read, or those of no task.
        """
        from limbeck.evaluation.measures import MeasuresSpec
        from limbeck.evaluation.protocols import PROTOCOLS
        from limbeck.recipe.load import apply_overrides

        tasks = self.tasks if self.tasks is not None else ",".join(PAPER_TASKS) if self.data is not None else "none"
        none = tasks.strip().lower() == "none"
        names = [] if none else [name.strip() for name in tasks.split(",") if name.strip()]
        if not names and not none:
            raise RecipeError(
                "--tasks names no tasks; give some, separated by commas, or leave it out to score on held-out text."
            )
        if not names and self.settings:
            raise RecipeError(
                "--set-task changes how tasks are fine-tuned, but there are none; give --tasks or --data."
            )
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


@request
class MappingRequest(SearchRequest):
    """A search for a layer mapping; the paper's share of the corpus is 0.1.

    `genetic` are the fields of `GeneticSettings` that differ from the paper's. Without tasks in `measures` held-out
    text decides. A worker trains its share of a generation at once where `batch` is None.

    Attributes:
        generations: Total generations; a larger number continues a finished search.
        teacher_layers: Teacher layers that may be learned from: 1-8,10.
        batch: Candidates that a worker trains at once under one teacher; default: its share of a generation.
        workers: Processes that search side by side on this machine; one per GPU.
    """

    proxy: ProxyRequest = part(ProxyRequest, changes={"name": {"given": "mapping"}, "share": {"given": 0.1}})
    generations: int = option(GENETIC, most=MOST_TRIALS, default=5)
    genetic: Mapping[str, Any] = part(GeneticSettings, _given_only, default=dict)
    teacher_layers: tuple[int, ...] | None = option(GENETIC, reads="layers", metavar="LAYERS", default=None)
    measures: MeasuresSpec = part(ProxyTasks, task_measures, default=lambda: task_measures("none"))
    batch: int | None = option(STUDY, most=MOST_TRIALS, default=None)
    workers: int = option(STUDY, most=MOST_WORKERS, default=1)


@request
class ShapeSizes:
    """The sizes that a student's shape has one of each of.

    Attributes:
        layers: Numbers of layers to choose from, separated by commas: 3,4,6.
        hidden: Hidden widths to choose from, separated by commas: 192,312,384.
        heads: Numbers of heads to choose from, separated by commas: 6,12.
        ffn: Feed-forward widths to choose from, as multiples of the hidden width: 2,4.
    """

    layers: tuple[int, ...] = option(SHAPES, reads="numbers", after="output")
    hidden: tuple[int, ...] = option(SHAPES, reads="numbers")
    heads: tuple[int, ...] = option(SHAPES, given="12", reads="numbers")
    ffn: tuple[float, ...] = option(SHAPES, given="4", reads="multiples")


@request
class ShapeLimits:
    """What a student may be at most: parameters of its encoder, and its latency as a share of its teacher's.

    Attributes:
        parameters: Most parameters that the student's encoder may have: 30M.
        latency_share: Longest latency, as a share of the teacher's: 0.5.
    """

    parameters: int | None = option(
        SHAPES, name="max_parameters", reads="count", metavar="COUNT", after="share", default=None
    )
    latency_share: float | None = option(SHAPES, name="max_latency_share", default=None)


@request
class MeasuringRequest:
    """How latencies are to be measured; see `limbeck.search.latency.LatencySetting`.

    Attributes:
        device: cpu, cuda, cuda:1 …; auto: the accelerator where there is one.
        length: Text length for the latency, in tokens; default: 128, or all that the teacher takes.
        batch: Batch size for the latency.
        seconds: Time for the latency of each shape.
    """

    device: str = option(MEASURING, default="auto")
    length: int | None = option(MEASURING, name="measure_length", most=MOST_TRIALS, default=None)
    batch: int = option(MEASURING, name="measure_batch", most=MOST_TRIALS, default=1)
    seconds: float = option(MEASURING, name="measure_seconds", bounds=(0.0, LONGEST_SECONDS), default=4.0)


ShapeLoss: TypeAlias = Literal["normalised", "hidden_states"]
SAMPLERS = ("tpe", "random", "nsga2", "gp", "kd_nas")


@request
class ArchitectureRequest(SearchRequest):
    """A search for a student's shape.

    Attributes:
        loss: `normalised`: the share of the teacher's last layer left unexplained, 1 for an untrained student;
            `hidden_states`: the comparative study's L_HS (equation 6), summed over the taught layers.
        trials: Total shapes to train; a larger number continues a finished search.
        sampler: Optuna's tpe, random, nsga2 or gp; or kd_nas, the controller of KD-NAS.
        episode: Number of shapes in an episode of kd_nas. The first episode is drawn at random, then 5 % less
            with each episode, down to 5 %. Default: 1; the paper uses 20.
        batch: Shapes that a worker trains at once under one teacher.
        prune: Stop shapes early whose reward so far is below the median of the others.
        workers: Processes that search side by side on this machine; one per GPU.
    """

    proxy: ProxyRequest = part(ProxyRequest, changes={"name": {"given": "architecture"}})
    sizes: ShapeSizes = part(ShapeSizes)
    limits: ShapeLimits = part(ShapeLimits, default=ShapeLimits)
    measuring: MeasuringRequest = part(MeasuringRequest, default=MeasuringRequest)
    loss: ShapeLoss = option(SCORES, default="normalised")
    trials: int = option(STUDY, most=MOST_TRIALS, default=24)
    sampler: str = option(STUDY, default="tpe")
    episode: int | None = option(STUDY, most=MOST_TRIALS, default=None)
    batch: int = option(STUDY, most=MOST_TRIALS, default=4)
    prune: bool = option(STUDY, default=True)
    workers: int = option(STUDY, most=MOST_WORKERS, default=1)

    def check(self) -> None:
        """Refuse numbers that leave nothing to do, other samplers, and an episode of one that has none.

        Raises:
            RecipeError: one line for the first.
        """
        super().check()
        if self.sampler not in SAMPLERS:
            raise RecipeError(f"Unknown sampler '{self.sampler}'.{suggestion(self.sampler, SAMPLERS)}")
        if self.episode is not None and self.sampler != "kd_nas":
            other = f"kd_nas, but '{self.sampler}' has no episodes"
            raise RecipeError(f"--episode {self.episode} is for the sampler {other}; leave it out.")


@request
class Halving:
    """Keep one in this many candidates after each round, as the command line says it.

    Attributes:
        halving: Keep one in this many candidates after each round; default: 2.
        no_halving: Train every candidate to the end.
    """

    halving: int | None = option(RACE, default=None)
    no_halving: bool = option(RACE, flag="--no-halving", default=False)


def _read_halving(halving: int | None, no_halving: bool) -> int | None:
    if no_halving and halving is not None:
        raise RecipeError(f"--halving {halving} and --no-halving contradict each other; give one of them.")
    return None if no_halving else 2 if halving is None else halving


_STEPS = "Steps of a candidate that is never dropped; default: the recipe's, which the result keeps."


@request
class TeacherLayerRequest(SearchRequest):
    """A search for the teacher layer to learn from; `halving` None trains all candidates to the end.

    Attributes:
        layers: Teacher layers to choose from: 6-12 or 4,8,10-12; default: all.
        steps_total: Steps of all candidates together, in place of --steps.
    """

    proxy: ProxyRequest = part(
        ProxyRequest, changes={"name": {"given": "teacher-layer"}, "steps": {"help": _STEPS, "panel": RACE}}
    )
    layers: tuple[int, ...] | None = option(RACE, reads="layers", after="method", default=None)
    steps_total: int | None = option(RACE, most=MOST_STEPS, after="steps", default=None)
    halving: int | None = part(Halving, _read_halving, default=lambda: 2)


REQUESTS: Mapping[str, type[SearchRequest]] = {
    "mapping": MappingRequest, "architecture": ArchitectureRequest, "teacher-layer": TeacherLayerRequest,
}  # fmt: skip
"""By the names of the commands."""


def options_of_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run without a recipe has from the search's options: its candidates' steps, and a shape."""
    found = {"steps": values["steps"]}
    if "hidden" in values:
        # The run's own shape is never trained, so that one of the search does where none is given.
        shape = f"{values['layers'][0]}x{values['hidden'][0]}h{values['heads'][0]}"
        found["student"] = {"shape": shape, "initialise": {"layers": "random"}}  # Which every shape can start from.
    return found


def search_request(
    kind: str, data: Mapping[str, Any], overrides: str | Sequence[str], values: Mapping[str, Any]
) -> SearchRequest:
    """Make the request of a search; the run that is searched for is in the search's folder if it names none.

    Args:
        kind: Of the search.
        data: The run's recipe.
        overrides: Over the recipe; see `load_recipe`.
        values: Of the search's options, read.

    Raises:
        RecipeError: one line for what is wrong with the recipe or an option.
    """
    from limbeck.recipe.load import load_recipe

    recipe = load_recipe(data, overrides)
    if recipe.output is None:
        recipe = load_recipe(recipe.model_dump(exclude_unset=True) | {"output": str(values["output"] / "run")})
    request: SearchRequest = make_request(REQUESTS[kind], {**values, "recipe": recipe})
    return request
