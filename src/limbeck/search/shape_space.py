"""The shapes that a search may try: a product of listed sizes, checked against the recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any, NamedTuple

import torch
from optuna.distributions import CategoricalDistribution

from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation.costs import count_parameters
from limbeck.models.blueprint import build_student
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe


class ShapePoint(NamedTuple):
    """One choice of each size: what a trial's parameters hold. `ffn` is a multiple of `hidden`."""

    layers: int
    hidden: int
    heads: int
    ffn: float

    def __str__(self) -> str:
        return f"{self.layers}x{self.hidden}, {self.heads} heads, FFN {self.ffn_width}"

    @property
    def ffn_width(self) -> int:
        """The inner width of the feed-forward part, to the nearest whole number."""
        return round(self.ffn * self.hidden)


@dataclass(frozen=True)
class ShapeSizes:
    """The sizes to choose from; a shape has one of each.

    Args:
        layers: Numbers of blocks.
        hidden: Widths of the hidden states.
        heads: Numbers of attention heads of a block.
        ffn: Widths of the feed-forward part, as multiples of the hidden width.
    """

    layers: tuple[int, ...]
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    ffn: tuple[float, ...]

    def __iter__(self) -> Iterator[ShapePoint]:
        return (ShapePoint(*point) for point in product(self.layers, self.hidden, self.heads, self.ffn))

    @property
    def distributions(self) -> dict[str, CategoricalDistribution]:
        """A trial's parameters by name."""
        return {size.name: CategoricalDistribution(getattr(self, size.name)) for size in fields(self)}


@dataclass(frozen=True)
class KnownShape:
    """A shape that the recipe can train.

    Args:
        point: Its sizes.
        plan: The recipe with this shape, checked.
        parameters: Of the encoder, without a pooler or a task's head.
    """

    point: ShapePoint
    plan: RunPlan
    parameters: int


@dataclass(frozen=True)
class ShapeSpace:
    """The product of sizes, divided into what a recipe can train and what it cannot.

    Args:
        sizes: The sizes.
        shapes: What can be trained.
        impossible: Why each other member of the product cannot.
    """

    sizes: ShapeSizes
    shapes: Mapping[ShapePoint, KnownShape]
    impossible: Mapping[ShapePoint, str]

    @property
    def description(self) -> dict[str, Any]:
        """The space as JSON holds it."""
        return {name: list(values) for name, values in asdict(self.sizes).items()}


def shape_space(recipe: Recipe, sizes: ShapeSizes) -> ShapeSpace:
    """Divide the product of sizes into shapes that the recipe can train and others.

    Args:
        recipe: The recipe; its own student's shape is replaced, but for the width of factorised embeddings.
        sizes: The sizes.

    Raises:
        RecipeError: for no sizes or repeated ones, for a student that starts from a checkpoint, which has one shape,
            for a student deeper than the teacher, and for a size of no shape that can be trained, such as heads that
            divide no width or a depth that the method forbids.
    """
    for size in fields(sizes):
        _check_values(size.name, getattr(sizes, size.name))
    if recipe.student.initialise.checkpoint is not None:
        raise RecipeError(
            "student.initialise.checkpoint is a model of one shape, so other shapes cannot start from it; leave it out."
        )
    shapes: dict[ShapePoint, KnownShape] = {}
    impossible: dict[ShapePoint, str] = {}
    for point in sizes:
        try:
            plan = plan_run(with_shape(recipe, point))
        except LimbeckError as problem:
            impossible[point] = str(problem)
        else:
            _check_depth(point.layers, plan.teacher.layers)
            shapes[point] = KnownShape(point, plan, _parameters(plan))
    if not shapes:
        raise RecipeError(f"No shape of these sizes can be trained: {next(iter(impossible.values()))}")
    for size in fields(sizes):
        _check_used(size.name, getattr(sizes, size.name), shapes, impossible)
    return ShapeSpace(sizes, shapes, impossible)


def with_shape(recipe: Recipe, point: ShapePoint) -> Recipe:
    """Return the recipe with another shape of its student.

    Raises:
        RecipeError: for sizes that no recipe can have.
    """
    own = recipe.student.shape
    embedding = None if isinstance(own, str) else own.embedding
    shape = {"layers": point.layers, "hidden": point.hidden, "heads": point.heads, "ffn": point.ffn_width}
    if embedding is not None:
        shape["embedding"] = embedding
    return load_recipe(recipe, [f"student.shape={json.dumps(shape)}"])


def _check_values(name: str, values: tuple[float, ...]) -> None:
    if not values:
        raise RecipeError(f"--{name} lists no size; give at least one.")
    for value in values:
        if values.count(value) > 1:
            raise RecipeError(f"--{name} lists {value:g} twice; list each size once.")


def _check_depth(layers: int, most: int) -> None:
    if layers > most:
        raise RecipeError(
            f"--layers {layers} is deeper than the teacher, which has {most} layers; list at most {most}."
        )


def _check_used(
    name: str, values: tuple[float, ...], shapes: Mapping[ShapePoint, KnownShape], impossible: Mapping[ShapePoint, str]
) -> None:
    used = {getattr(point, name) for point in shapes}
    for value in values:
        if value not in used:
            reason = next(text for point, text in impossible.items() if getattr(point, name) == value)
            raise RecipeError(f"--{name} {value:g} is in no shape that can be trained: {reason}")


def _parameters(plan: RunPlan) -> int:
    # On the meta device a model has shapes and no weights, whatever its size.
    with torch.device("meta"):
        counts = count_parameters(build_student(plan.student_config, seed=0))
    return counts.embedding + counts.transformer
