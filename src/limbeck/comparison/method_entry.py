"""`MethodEntry`: a method of a comparison, and the variants of it that its layer mappings make."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, model_validator

from limbeck.core.yaml import Strict
from limbeck.errors import LimbeckError, suggestion
from limbeck.methods.composition import LayerChoice, MappingChoice
from limbeck.methods.registry import METHODS
from limbeck.recipe.method_recipe import stages_of
from limbeck.recipe.schema import StageSpec, explain

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
    """A method that is compared: a registered one with all its stages, or stages written out."""

    name: str | None = Field(default=None, description="A method's name; `limbeck methods` lists them.")
    title: str | None = Field(default=None, min_length=1, description="What the tables call it; default: its name.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the method, for each of its stages that has them."
    )
    stages: list[StageSpec] | None = Field(
        default=None,
        description="Instead of name: the stages themselves, as in a recipe; none keeps the student's start.",
    )
    mappings: list[MappingChoice] = Field(
        default_factory=list, description="Layer mappings, one row of the table each."
    )
    teacher_layers: list[LayerChoice] = Field(
        default_factory=list, description="Teacher layers to learn from, one row of the table each."
    )
    shares: list[float] = Field(
        default_factory=list, description="How the stages share the budget, in proportion; default: equally."
    )
    training: dict[str, Any] = Field(
        default_factory=dict, description="Training arguments of this method alone, over the common ones."
    )

    @model_validator(mode="before")
    @classmethod
    def _one_of_the_two(cls, data: Any) -> Any:
        if isinstance(data, dict) and (data.get("name") is None) == (data.get("stages") is None):
            raise ValueError("give either name (a method) or stages (written out), and not both")
        return data

    @model_validator(mode="after")
    def _can_be_expanded(self) -> MethodEntry:
        if self.stages is not None:
            if self.title is None:
                raise ValueError("stages that are written out need a title")
            if self.options:
                raise ValueError("options belong to a method by name; write them into the stages")
            for stage in self.stages:
                if common := [name for name in _COMMON if name in stage.model_fields_set]:
                    raise ValueError(f"stage '{stage.title}' has a {common[0]} of its own, and a comparison has one")
        if any(share <= 0 for share in self.shares):
            raise ValueError(f"shares {self.shares} have to be above 0")
        self.variants()
        return self

    @property
    def shown(self) -> str:
        """What tables call it."""
        return self.title or str(self.name)

    def variants(self) -> list[Variant]:
        """Return a variant for every layer mapping and teacher layer, or the one of the method's own choice.

        Raises:
            ValueError: for an option that no stage has or can have, and shares that are not one a stage.
        """
        base = self._stages()
        if len(self.shares) not in (0, len(base)):
            raise ValueError(f"shares {self.shares} has to have a number for each of the {len(base)} stages")
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
        """The stages with options and training, each with a name of its own."""
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
    known = {name for stage in stages for name in METHODS[stage["method"]["name"]].options.model_fields}
    if option not in known:
        methods = ", ".join(dict.fromkeys(stage["method"]["name"] for stage in stages)) or "no stage"
        if option in _AXES:
            others = [axis for name, axis in _AXES.items() if name in known]
            raise ValueError(f"{methods} takes no {place}" + (f"; it takes {', '.join(others)}" if others else ""))
        raise ValueError(f"{place}: {methods} has no option '{option}'.{suggestion(option, known)}")
    changed: list[Stage] = []
    problem = ""
    taken = False
    for stage in stages:
        method = {**stage["method"], option: value}
        fields = METHODS[method["name"]].options
        if option not in fields.model_fields:
            changed.append(stage)
            continue
        try:
            fields.model_validate({key: given for key, given in method.items() if key != "name"})
        except ValidationError as error:  # MLKD-BERT's second stage knows the first one's options, and refuses them.
            problem = problem or explain(error).removeprefix("recipe: ")
            changed.append(stage)
        else:
            taken = True
            changed.append({**stage, "method": method})
    if not taken:
        raise ValueError(f"{place}: {problem}")
    return changed


def mapping_title(stages: Sequence[Mapping[str, Any]]) -> str:
    """Name the layer mapping or teacher layer of the first stage that has one; empty without.

    Layers counted from the end are written as the comparative study does: L, L-1, L-2.
    """
    for stage in stages:
        method = dict(stage["method"])
        options: Any = METHODS[method.pop("name")].options.model_validate(method)
        if hasattr(options, "mapping"):
            return str(options.mapping)
        if hasattr(options, "teacher_layer"):
            layer = options.teacher_layer
            if isinstance(layer, str):
                return f"layer {layer}"
            return f"layer L{layer + 1 or ''}" if layer < 0 else f"layer {layer}"
    return ""
