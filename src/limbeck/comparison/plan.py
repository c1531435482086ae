"""`ComparisonPlan`: one document that says what is compared, and what is the same for all."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from limbeck.core.fields import Name, Whole
from limbeck.core.mistakes import explain, mistakes_of
from limbeck.core.strict import Strict
from limbeck.core.yaml import read_document
from limbeck.errors import LimbeckError, RecipeError, suggestion, together
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.methods.options import LayerChoice, MappingChoice
from limbeck.methods.registry import METHODS, read_method
from limbeck.recipe.corpus import Corpus
from limbeck.recipe.load import apply_overrides, check_plain, with_paths_beside, written_out
from limbeck.recipe.method_recipe import stages_of
from limbeck.recipe.models import ShapeSpec, StudentSpec, Teacher
from limbeck.recipe.stages import StageSpec

# `MethodEntry`: a method of a comparison, and the variants of it that its layer mappings make.


Stage = dict[str, Any]
"""A stage as a recipe has it, without the steps, which the budget decides."""
_COMMON = ("teacher", "student", "corpus", "text")
_AXES = {"mapping": "mappings", "teacher_layer": "teacher_layers"}


@dataclass(frozen=True)
class Variant:
    """A method with one layer mapping: what is distilled for every student and seed.

    Attributes:
        method: The method's title.
        mapping: Its layer mapping or teacher layer, as tables show it; empty for a method that has none.
        stages: Its stages, without steps.
        shares: The share of the budget of each stage; they add up to 1.
    """

    method: str
    mapping: str
    stages: tuple[Stage, ...]
    shares: tuple[float, ...]

    @property
    def title(self) -> str:
        """Method and mapping, for messages."""
        return f"{self.method}, {self.mapping}" if self.mapping else self.method


class MethodEntry(Strict):
    """A method that is compared: a registered one with all its stages, or stages written out.

    Attributes:
        name: A method's name; `limbeck methods` lists them.
        title: What the tables call it; default: its name.
        options: Options of the method, for each of its stages that has them.
        stages: Instead of name: the stages themselves, as in a recipe; none keeps the student's start.
        mappings: Layer mappings, one row of the table each.
        teacher_layers: Teacher layers to learn from, one row of the table each.
        shares: How the stages share the budget, in proportion; default: equally.
        training: Training arguments of this method alone, over the common ones.
    """

    name: str | None = None
    title: str | None = Field(default=None, min_length=1)
    options: dict[str, Any] = Field(default_factory=dict)
    stages: list[StageSpec] | None = None
    mappings: list[MappingChoice] = Field(default_factory=list)
    teacher_layers: list[LayerChoice] = Field(default_factory=list)
    shares: list[float] = Field(default_factory=list)
    training: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_of_the_two(cls, data: Any) -> Any:
        if isinstance(data, dict) and (data.get("name") is None) == (data.get("stages") is None):
            raise ValueError("give either name (a method) or stages (written out), but not both")
        return data

    @model_validator(mode="after")
    def _can_be_expanded(self) -> MethodEntry:
        if self.stages is not None:
            if self.title is None:
                raise ValueError("stages that are written out need a title")
            if self.options:
                raise ValueError("options go with a method's name; write them into the stages")
            for stage in self.stages:
                if common := [name for name in _COMMON if name in stage.model_fields_set]:
                    raise ValueError(f"stage '{stage.title}' has a separate {common[0]}, but a comparison has only one")
        if any(share <= 0 for share in self.shares):
            raise ValueError(f"shares {self.shares} must be above 0")
        self.variants()
        return self

    @property
    def shown(self) -> str:
        """What tables call it."""
        return self.title or str(self.name)

    def variants(self) -> list[Variant]:
        """Return a variant for every layer mapping and teacher layer, or one by the method's default.

        Raises:
            ValueError: for an option that no stage has or can have, and shares that are not one a stage.
        """
        base = self._stages()
        if len(self.shares) not in (0, len(base)):
            raise ValueError(f"shares {self.shares} must have a number for each of the {len(base)} stages")
        shares = self.shares or [1.0] * len(base)
        found = []
        axes = [[(option, value) for value in getattr(self, axis)] for option, axis in _AXES.items()]
        for choice in itertools.product(*(axis for axis in axes if axis)):
            stages = base
            for option, value in choice:
                stages = _with_option(stages, option, value, _AXES[option])
            weights = tuple(share / sum(shares) for share in shares)
            found.append(Variant(self.shown, mapping_title(stages), tuple(stages), weights))
        return found

    def _stages(self) -> list[Stage]:
        """The stages with options and training, each with a unique name."""
        if self.stages is not None:
            given = [stage.model_dump(mode="json", exclude_unset=True) for stage in self.stages]
        else:
            try:
                given = [{"method": stage} for stage in stages_of(METHODS[str(self.name)])]
            except LimbeckError as error:
                raise ValueError(str(error)) from None
            for option, value in self.options.items():
                given = _with_option(given, option, value, f"options.{option}")
        several = len(given) > 1
        return [
            {
                **({"name": f"stage-{number}"} if several else {}),
                **stage,
                "training": {**self.training, **stage.get("training", {})},
            }
            for number, stage in enumerate(given, start=1)
        ]


def _with_option(stages: Sequence[Stage], option: str, value: Any, place: str) -> list[Stage]:
    """Set an option of the method of every stage that takes it."""
    known = {name for stage in stages for name in _options(stage)}
    if option not in known:
        methods = ", ".join(dict.fromkeys(stage["method"]["name"] for stage in stages)) or "no stage"
        if option in _AXES:
            others = [axis for name, axis in _AXES.items() if name in known]
            raise ValueError(f"{methods} takes no {place}" + (f"; it takes {', '.join(others)}" if others else ""))
        raise ValueError(f"{place}: {methods} has no option '{option}'.{suggestion(option, known)}")
    changed, problems = list(stages), []
    takers = [number for number, stage in enumerate(stages) if option in _options(stage)]
    for number in takers:
        method = {**stages[number]["method"], option: value}
        try:
            read_method(method)
        except ValidationError as error:  # MLKD-BERT's second stage knows the first one's options, and refuses them.
            problems.append(explain(error).removeprefix("recipe: "))
        else:
            changed[number] = {**stages[number], "method": method}
    if len(problems) == len(takers):
        raise ValueError(f"{place}: {problems[0]}")
    return changed


def _options(stage: Stage) -> Collection[str]:
    """The names of the options of a stage's method."""
    return METHODS[stage["method"]["name"]].options.model_fields


def mapping_title(stages: Sequence[Mapping[str, Any]]) -> str:
    """Name the layer mapping or teacher layer of the first stage that has one; empty without."""
    for stage in stages:
        options: Any = read_method(stage["method"])[1]
        if hasattr(options, "mapping"):
            return str(options.mapping)
        if hasattr(options, "teacher_layer"):
            layer = options.teacher_layer
            if isinstance(layer, str):
                return f"layer {layer}"
            if layer < 0:
                return "last layer" if layer == -1 else f"layer {-layer} from the end"
            return f"layer {layer}"
    return ""


# What a plan measures: tasks, agreement with the teacher on held-out text, and what the students cost.


_BUDGETED = ("max_steps", "num_train_epochs")


class ComparedStudent(StudentSpec):
    """A student that every method trains, from the same start.

    Attributes:
        name: What the tables call it; default: its shape.
    """

    name: str | None = Field(default=None, min_length=1)

    @property
    def title(self) -> str:
        """What the tables call it."""
        if self.name is not None:
            return self.name
        return f"{self.shape.layers}x{self.shape.hidden}" if isinstance(self.shape, ShapeSpec) else str(self.shape)

    def in_recipe(self) -> dict[str, Any]:
        """Return the student as a recipe has it."""
        return self.model_dump(mode="json", exclude={"name"})


class BudgetSpec(Strict):
    """How much every run trains.

    Attributes:
        tokens: Real tokens that every run reads, special tokens included, padding not; the stages of a method share
            them.
    """

    tokens: int = Field(ge=1)


class ComparisonPlan(Strict):
    """A comparison: every method with every mapping makes every student with every seed.

    Attributes:
        name: Name of the comparison.
        corpus: The text that all runs read.
        students: Shapes, or shapes with initialise, dropout and a name.
        methods: Names, or names with options and layer mappings.
        seeds: Seeds of start, data order and dropout.
        training: Fields of transformers.TrainingArguments that all runs share.
        evaluation: What is measured of the students.
        skip_impossible: Leave out combinations that cannot be, instead of refusing the plan.
    """

    name: Name = "comparison"
    teacher: Teacher
    corpus: Corpus
    students: list[ComparedStudent] = Field(min_length=1)
    methods: list[MethodEntry] = Field(min_length=1)
    seeds: list[Whole] = Field(default=[1], min_length=1)
    budget: BudgetSpec
    training: dict[str, Any] = Field(default_factory=dict)
    evaluation: MeasuresSpec = Field(default_factory=MeasuresSpec)
    skip_impossible: bool = False

    @field_validator("methods", mode="before")
    @classmethod
    def _names_are_methods(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [{"name": entry} if isinstance(entry, str) else entry for entry in value]

    @model_validator(mode="after")
    def _fits_together(self) -> ComparisonPlan:
        _no_twins("students", [student.title for student in self.students], "give each a unique name")
        _no_twins("methods", [entry.shown for entry in self.methods], "give each a unique title")
        _no_twins("seeds", self.seeds, "name each once")
        if any(not 0 <= seed < 2**32 - 100 for seed in self.seeds):
            raise ValueError(f"seeds {self.seeds} must be between 0 and {2**32 - 101}")
        arguments = [self.training, *(entry.training for entry in self.methods)]
        arguments += [stage.training for entry in self.methods for stage in entry.stages or ()]
        for name in _BUDGETED:
            if any(name in given for given in arguments):
                raise ValueError(f"training.{name} is decided by budget.tokens: leave it out")
        if not any(variant.stages for entry in self.methods for variant in entry.variants()):
            raise ValueError("methods has no stage that trains; add a method")
        measures = self.evaluation
        if not (measures.tasks or measures.held_out.enabled):
            raise ValueError("evaluation names no task and held_out is off, so nothing would be compared")
        if self.teacher.revision is not None and measures.tasks and measures.teacher:
            raise ValueError(
                "teacher.revision cannot be evaluated; save that revision to a folder, or set evaluation.teacher: false"
            )
        return self


def _no_twins(place: str, names: list[Any], way_out: str) -> None:
    if twins := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two of the {place} are '{twins[0]}'; {way_out}")


# `load_plan`: a comparison's plan from YAML, with overrides and errors in one line.


def load_plan(
    plan: ComparisonPlan | Mapping[str, Any] | str | Path,
    overrides: str | Sequence[str] = (),
    *,
    data: str | Path | None = None,
) -> ComparisonPlan:
    """Make a checked plan of a path, a dict or a plan.

    Args:
        plan: The plan.
        overrides: `path.to.key=value` each, or one alone, applied before checking.
        data: Folder with the tasks' files; wins over the plan's.

    Raises:
        RecipeError: one line that names each mistake with its place in the plan.
    """
    if isinstance(plan, str | Path):
        given = _read(Path(plan))
    elif isinstance(plan, ComparisonPlan):
        given = plan.model_dump(exclude_unset=True)
    else:
        given = dict(plan)
    check_plain(given)
    changed = apply_overrides(written_out(given), overrides)
    check_plain(changed)
    if data is not None:
        evaluation = changed.get("evaluation")
        changed["evaluation"] = {**(evaluation if isinstance(evaluation, dict) else {}), "data": str(data)}
    try:
        return ComparisonPlan.model_validate(changed)
    except ValidationError as error:
        found = [RecipeError(f"plan: {line.removeprefix('recipe: ')}") for line in mistakes_of(error)]
        raise together(found) from None


def _read(path: Path) -> dict[str, Any]:
    found = read_document(path, f"Plan '{path}'", "give a YAML file, see docs/comparison.md.")
    if not isinstance(found, dict):
        raise RecipeError(f"Plan '{path}' must be a mapping with teacher, corpus, students, methods and budget.")
    return {key: with_paths_beside(value, path.parent, key) for key, value in found.items()}
