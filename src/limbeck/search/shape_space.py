"""The shapes that a search may try, and their limits.

A *shape* is a student's number of layers, its widths and its number of heads. The sizes that a user lists make a
product, of which a recipe can train some members.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import NamedTuple

import torch

from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation.costs import count_parameters
from limbeck.models import families, students
from limbeck.recipe.load import load_recipe
from limbeck.recipe.models import ShapeSpec
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search.requests import ShapeLimits, ShapeSizes


class ShapePoint(NamedTuple):
    """One choice of each size: what a trial's parameters hold. `ffn` is a multiple of `hidden`."""

    layers: int
    hidden: int
    heads: int
    ffn: float

    def __str__(self) -> str:
        return families.describe_size(self.layers, self.hidden, self.heads, self.ffn_width)

    @property
    def ffn_width(self) -> int:
        """The inner width of the feed-forward part, to the nearest whole number."""
        return round(self.ffn * self.hidden)


def shape_points(sizes: ShapeSizes) -> list[ShapePoint]:
    """Return all shapes of listed sizes."""
    return [ShapePoint(*point) for point in product(sizes.layers, sizes.hidden, sizes.heads, sizes.ffn)]


@dataclass(frozen=True)
class KnownShape:
    """A shape that the recipe can train.

    Args:
        point: Its sizes.
        plan: The recipe with this shape, checked.
        parameters: Parameters of the encoder, without a pooler or a task's head.
    """

    point: ShapePoint
    plan: RunPlan
    parameters: int


@dataclass(frozen=True)
class ShapeSpace:
    """The product of sizes, divided into shapes that a recipe can train and others.

    Args:
        sizes: The sizes.
        shapes: The shapes that can be trained.
        impossible: The other members of the product, each with the reason why it cannot be trained.
    """

    sizes: ShapeSizes
    shapes: Mapping[ShapePoint, KnownShape]
    impossible: Mapping[ShapePoint, str]


def divide_shapes(recipe: Recipe, sizes: ShapeSizes) -> ShapeSpace:
    """Divide all combinations of the listed sizes into shapes that the recipe can train and shapes that it cannot.

    Args:
        recipe: The recipe; the shape of its student is replaced, except for a width of factorised embeddings.
        sizes: The listed values of each size.

    Raises:
        RecipeError: for no sizes or repeated ones, for a student that starts from a checkpoint, which has one shape,
            for a student deeper than the teacher, and for a size that no trainable shape has, such as heads that
            divide no width or a depth that the method forbids.
    """
    # The listed values of each size, by the name that is the option's too.
    values_by_size: dict[str, tuple[float, ...]] = {field.name: getattr(sizes, field.name) for field in fields(sizes)}
    _check_listed(values_by_size)
    if recipe.student.initialise.checkpoint is not None:
        raise RecipeError(
            "student.initialise.checkpoint is a model of one shape, so students of other shapes cannot start from "
            "it; leave student.initialise.checkpoint out."
        )

    # The shapes that can be trained, and for each other one the reason why it cannot.
    shapes: dict[ShapePoint, KnownShape] = {}
    impossible: dict[ShapePoint, str] = {}
    for point in shape_points(sizes):
        try:
            plan = plan_run(with_shape(recipe, point))
        except LimbeckError as error:
            impossible[point] = str(error)
            continue
        if point.layers > plan.teacher.layers:
            raise RecipeError(
                f"--layers {point.layers} is deeper than the teacher, which has {plan.teacher.layers} layers; list "
                f"at most {plan.teacher.layers}."
            )
        shapes[point] = KnownShape(point, plan, _count_encoder_parameters(plan))

    # A size that no trainable shape has was listed by mistake.
    if not shapes:
        first_reason = next(iter(impossible.values()))
        raise RecipeError(f"None of the shapes of these sizes can be trained. The first reason: {first_reason}")
    for name, values in values_by_size.items():
        possible_values = {getattr(point, name) for point in shapes}
        for value in values:
            if value not in possible_values:
                reason = next(text for point, text in impossible.items() if getattr(point, name) == value)
                raise RecipeError(f"No shape with --{name} {value:g} can be trained: {reason}")
    return ShapeSpace(sizes, shapes, impossible)


def _check_listed(values_by_size: Mapping[str, tuple[float, ...]]) -> None:
    """Refuse sizes without a value, or with one twice.

    Raises:
        RecipeError: naming the option.
    """
    for name, values in values_by_size.items():
        if not values:
            raise RecipeError(f"--{name} lists no sizes; give at least one.")
        for value in values:
            if values.count(value) > 1:
                raise RecipeError(f"--{name} lists {value:g} twice; list each size once.")


def _count_encoder_parameters(plan: RunPlan) -> int:
    """Return the parameters of a student's encoder, without a pooler or a task's head."""
    # On the meta device a model has shapes and no weights, whatever its size.
    with torch.device("meta"):
        counts = count_parameters(students.build_student(plan.student_config, seed=0))
    return counts.embedding + counts.transformer


def with_shape(recipe: Recipe, point: ShapePoint) -> Recipe:
    """Return the recipe with another shape of its student.

    Raises:
        RecipeError: for sizes that no recipe can have.
    """
    recipe_shape = recipe.student.shape
    shape = {"layers": point.layers, "hidden": point.hidden, "heads": point.heads, "ffn": point.ffn_width}
    if isinstance(recipe_shape, ShapeSpec) and recipe_shape.embedding is not None:
        shape["embedding"] = recipe_shape.embedding
    return load_recipe(recipe, [f"student.shape={json.dumps(shape)}"])


def refuse_parameters(limits: ShapeLimits, shape: KnownShape) -> str | None:
    """Return the reason why a shape is too large; None where it is not."""
    if limits.parameters is None or shape.parameters <= limits.parameters:
        return None
    return f"{shape.parameters:,} parameters, {limits.parameters:,} are the limit"


def refuse_latency(limits: ShapeLimits, share: float) -> str | None:
    """Return the reason why a shape is too slow; None where it is not.

    Args:
        limits: The limits.
        share: The shape's latency as a share of the teacher's.
    """
    if limits.latency_share is None or share <= limits.latency_share:
        return None
    return f"{share:.3f} of the teacher's latency, {limits.latency_share:g} is the limit"


def check_some_small_enough(limits: ShapeLimits, shapes: Iterable[KnownShape]) -> None:
    """Refuse a limit of parameters that no shape meets.

    Raises:
        RecipeError: naming the smallest shape.
    """
    smallest = min(shapes, key=lambda shape: shape.parameters)
    if refuse_parameters(limits, smallest) is not None:
        raise RecipeError(
            f"No shape has at most {limits.parameters:,} parameters: the smallest, {smallest.point}, has "
            f"{smallest.parameters:,}; raise --max-parameters to {smallest.parameters}, or list smaller sizes."
        )
