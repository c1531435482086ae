"""`MethodEntry`, an entry of a comparison's list of methods, and the variants that it stands for.

An entry may list several *layer mappings* (which student layers learn from which teacher layers) or teacher layers; it
stands for a *variant*, and a row of the table, for each of them. A method consists of *stages*, trained one after the
other.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, model_validator

from limbeck.core.mistakes import explain
from limbeck.core.strict import Strict
from limbeck.errors import LimbeckError, suggestion
from limbeck.methods.options import LayerChoice, MappingChoice
from limbeck.methods.registry import METHODS, read_method
from limbeck.recipe.method_recipe import stages_of
from limbeck.recipe.stages import StageSpec

Stage = dict[str, Any]
"""A stage as it stands in a recipe, without the number of steps, which the budget decides."""
_COMMON = ("teacher", "student", "corpus", "text")
"""Keys of a stage that are the same for all runs of a comparison."""
_AXES = {"mapping": "mappings", "teacher_layer": "teacher_layers"}
"""Options of methods that a comparison varies, and the keys with their values."""


@dataclass(frozen=True)
class Variant:
    """A method with one layer mapping: what is distilled for every student and seed.

    Attributes:
        method: The method's title.
        mapping: Its layer mapping or teacher layer, as tables show it; empty for a method that has none.
        stages: The stages of the method, without numbers of steps.
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
        options: Options of the method; each is set in all of its stages that have it.
        stages: Instead of name: the stages themselves, as in a recipe; an empty list trains nothing.
        mappings: Layer mappings, one row of the table each.
        teacher_layers: Teacher layers to learn from, one row of the table each.
        shares: How the stages share the budget, in proportion; default: equally.
        training: Training arguments of this method alone, which take precedence over the common ones.
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
    def _has_name_or_stages(cls, data: Any) -> Any:
        """Refuse an entry with a name and stages, or with neither."""
        if isinstance(data, dict) and (data.get("name") is None) == (data.get("stages") is None):
            raise ValueError(
                "give exactly one of 'name' (a registered method) and 'stages' (a list of stages of your own)"
            )
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> MethodEntry:
        """Refuse an entry that contradicts itself, or whose variants cannot be made."""
        if self.stages is not None:
            self._check_written_stages(self.stages)
        if any(share <= 0 for share in self.shares):
            raise ValueError(f"shares {self.shares} must be above 0")
        # Raises ValueError where a variant cannot be made.
        self.variants()
        return self

    def _check_written_stages(self, stages: Sequence[StageSpec]) -> None:
        """Refuse written-out stages without a title, beside options, or with settings that all runs of a plan share."""
        if self.title is None:
            raise ValueError(
                "'stages' is given in place of a method's name, so the tables have no name for this entry: add title: …"
            )
        if self.options:
            raise ValueError(
                "'options' applies only to an entry with a method's 'name', but this entry lists its own stages: "
                "write the options into each stage"
            )
        for stage in stages:
            for name in _COMMON:
                if name in stage.model_fields_set:
                    raise ValueError(
                        f"stage '{stage.title}' has its own {name}, but all runs of a comparison share one: leave "
                        f"{name} out of the stage"
                    )

    @property
    def shown(self) -> str:
        """What tables call it."""
        return self.title or str(self.name)

    def variants(self) -> list[Variant]:
        """Return a variant for every layer mapping and teacher layer, or one by the method's default.

        Raises:
            ValueError: for an option that no stage has or can have, and for more or fewer shares than stages.
        """
        stages_of_entry = self._stages()
        if self.shares and len(self.shares) != len(stages_of_entry):
            raise ValueError(
                f"shares {self.shares} has {len(self.shares)} numbers for {len(stages_of_entry)} stages: give one "
                "number for each stage"
            )
        # By default the stages have equal shares of the budget. Those that are given need not add up to 1.
        parts = self.shares or [1.0] * len(stages_of_entry)
        shares = tuple(part / sum(parts) for part in parts)

        # Every mapping with every teacher layer; None leaves the option as the method has it.
        mappings = self.mappings or (None,)
        teacher_layers = self.teacher_layers or (None,)
        variants = []
        for mapping, teacher_layer in itertools.product(mappings, teacher_layers):
            stages = stages_of_entry
            if mapping is not None:
                stages = _with_option(stages, "mapping", mapping, place=_AXES["mapping"])
            if teacher_layer is not None:
                stages = _with_option(stages, "teacher_layer", teacher_layer, place=_AXES["teacher_layer"])
            variants.append(
                Variant(method=self.shown, mapping=mapping_title(stages), stages=tuple(stages), shares=shares)
            )
        return variants

    def _stages(self) -> list[Stage]:
        """Return the stages with options and training, each with a unique name where there are several."""
        if self.stages is not None:
            stages = [stage.model_dump(mode="json", exclude_unset=True) for stage in self.stages]
        else:
            stages = self._stages_of_method()
        named_stages = []
        for number, stage in enumerate(stages, start=1):
            named_stage = dict(stage)
            # The arguments of a stage take precedence over those of the method.
            named_stage["training"] = {**self.training, **stage.get("training", {})}
            # A recipe names a stage without a name after its method, but its stages must not have the same name.
            if len(stages) > 1 and "name" not in named_stage:
                named_stage["name"] = f"stage-{number}"
            named_stages.append(named_stage)
        return named_stages

    def _stages_of_method(self) -> list[Stage]:
        """Return the stages of a registered method, with the options of this entry."""
        try:
            stages = [{"method": stage} for stage in stages_of(METHODS[str(self.name)])]
        except LimbeckError as error:
            raise ValueError(str(error)) from None
        for option, value in self.options.items():
            stages = _with_option(stages, option, value, place=f"options.{option}")
        return stages


def _with_option(stages: Sequence[Stage], option: str, value: Any, *, place: str) -> list[Stage]:
    """Return stages with an option set in the method of every stage that takes it.

    Args:
        stages: Left as they are.
        option: The option of the method.
        value: The value of the option.
        place: The key under which the user gave the option, for messages.

    Raises:
        ValueError: if no stage has the option, or all that have it refuse the value.
    """
    if not any(option in _options(stage) for stage in stages):
        raise _unknown_option(stages, option, place)

    changed_stages: list[Stage] = []
    accepting_stages = 0
    refusals = []
    for stage in stages:
        if option not in _options(stage):
            changed_stages.append(stage)
            continue
        method = {**stage["method"], option: value}
        refusal = _refusal_of_method(method)
        if refusal is None:
            accepting_stages += 1
            changed_stages.append({**stage, "method": method})
        else:
            # A stage may have an option that only another stage of the method can use, and refuse to have it set, as
            # MLKD-BERT's second stage does. Such a stage stays as it is. It is an error only if all stages refuse.
            refusals.append(refusal)
            changed_stages.append(stage)
    if not accepting_stages:
        raise ValueError(f"{place}: {refusals[0]}")
    return changed_stages


def _refusal_of_method(method: Mapping[str, Any]) -> str | None:
    """Return the message of a method that refuses its options; None where it accepts them."""
    try:
        read_method(method)
    except ValidationError as error:
        # Messages begin with the place in a recipe. Here the place is one in a plan, and the caller names it.
        return explain(error).removeprefix("recipe: ")
    return None


def _unknown_option(stages: Sequence[Stage], option: str, place: str) -> ValueError:
    """Return the error for an option that no stage has.

    For a list that a comparison varies (`mappings`, `teacher_layers`), it names the lists that the stages take.
    """
    known_options: set[str] = set()
    for stage in stages:
        known_options.update(_options(stage))
    # Each method once, in the order of the stages; an entry may have none.
    methods = ", ".join(dict.fromkeys(stage["method"]["name"] for stage in stages)) or "no stage"
    if option not in _AXES:
        return ValueError(f"{place}: {methods} has no option '{option}'.{suggestion(option, known_options)}")
    known_lists = [name_of_list for name, name_of_list in _AXES.items() if name in known_options]
    way_out = f"; it takes {', '.join(known_lists)}" if known_lists else ""
    return ValueError(f"{methods} takes no {place}{way_out}")


def _options(stage: Stage) -> Collection[str]:
    """Return the names of the options of a stage's method."""
    return METHODS[stage["method"]["name"]].options.model_fields


def mapping_title(stages: Sequence[Mapping[str, Any]]) -> str:
    """Return the layer mapping or teacher layer of the first stage that has one, as tables show it; else ""."""
    for stage in stages:
        _, options = read_method(stage["method"])
        # Which options there are depends on the method.
        values = dict(options)
        if "mapping" in values:
            return str(values["mapping"])
        if "teacher_layer" in values:
            return _layer_title(values["teacher_layer"])
    return ""


def _layer_title(layer: int | str) -> str:
    """Return a teacher layer in words; negative numbers count from the end."""
    if layer == -1:
        return "last layer"
    if isinstance(layer, int) and layer < 0:
        return f"layer {-layer} from the end"
    return f"layer {layer}"
