"""The shapes that a search may try, their limits and rewards, and the samplers that choose among them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product, starmap
from typing import Any, NamedTuple, TypeAlias

import torch
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation.costs import count_parameters
from limbeck.models import families, students
from limbeck.recipe.load import load_recipe
from limbeck.recipe.models import ShapeSpec
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search.kd_nas import ControllerSampler
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
    return list(starmap(ShapePoint, product(sizes.layers, sizes.hidden, sizes.heads, sizes.ffn)))


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
    """The product of sizes, divided into shapes that a recipe can train and others.

    Args:
        sizes: The sizes.
        shapes: What can be trained.
        impossible: Why each other member of the product cannot.
    """

    sizes: ShapeSizes
    shapes: Mapping[ShapePoint, KnownShape]
    impossible: Mapping[ShapePoint, str]


def divide_shapes(recipe: Recipe, sizes: ShapeSizes) -> ShapeSpace:
    """Divide the product of sizes into shapes that the recipe can train and others.

    Args:
        recipe: The recipe; its own student's shape is replaced, but for the width of factorised embeddings.
        sizes: The sizes.

    Raises:
        RecipeError: for no sizes or repeated ones, for a student that starts from a checkpoint, which has one shape,
            for a student deeper than the teacher, and for a size of no shape that can be trained, such as heads that
            divide no width or a depth that the method forbids.
    """
    listed: dict[str, tuple[float, ...]] = {size.name: getattr(sizes, size.name) for size in fields(sizes)}
    for name, values in listed.items():
        if not values:
            raise RecipeError(f"--{name} lists no sizes; give at least one.")
        for value in values:
            if values.count(value) > 1:
                raise RecipeError(f"--{name} lists {value:g} twice; list each size once.")
    if recipe.student.initialise.checkpoint is not None:
        raise RecipeError(
            "student.initialise.checkpoint is a model of one shape, so other shapes cannot start from it; leave it out."
        )
    shapes: dict[ShapePoint, KnownShape] = {}
    impossible: dict[ShapePoint, str] = {}
    for point in shape_points(sizes):
        try:
            plan = plan_run(with_shape(recipe, point))
        except LimbeckError as problem:
            impossible[point] = str(problem)
        else:
            if point.layers > plan.teacher.layers:
                raise RecipeError(
                    f"--layers {point.layers} is deeper than the teacher, which has {plan.teacher.layers} layers; list "
                    f"at most {plan.teacher.layers}."
                )
            # On the meta device a model has shapes and no weights, whatever its size.
            with torch.device("meta"):
                counts = count_parameters(students.build_student(plan.student_config, seed=0))
            shapes[point] = KnownShape(point, plan, counts.embedding + counts.transformer)
    if not shapes:
        raise RecipeError(f"No shape of these sizes can be trained: {next(iter(impossible.values()))}")
    for name, values in listed.items():
        for value in values:
            if value not in {getattr(point, name) for point in shapes}:
                reason = next(text for point, text in impossible.items() if getattr(point, name) == value)
                raise RecipeError(f"--{name} {value:g} is in no shape that can be trained: {reason}")
    return ShapeSpace(sizes, shapes, impossible)


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
    """Return why a shape is too large, or None."""
    if limits.parameters is None or shape.parameters <= limits.parameters:
        return None
    return f"{shape.parameters:,} parameters, {limits.parameters:,} are the limit"


def refuse_latency(limits: ShapeLimits, share: float) -> str | None:
    """Return why a shape is too slow, or None."""
    if limits.latency_share is None or share <= limits.latency_share:
        return None
    return f"{share:.3f} of the teacher's latency, {limits.latency_share:g} is the limit"


def check_some_small_enough(limits: ShapeLimits, shapes: Iterable[KnownShape]) -> None:
    """Refuse a limit of parameters that no shape meets.

    Raises:
        RecipeError: naming the smallest shape.
    """
    smallest = min(shapes, key=lambda shape: shape.parameters)
    if refuse_parameters(limits, smallest):
        raise RecipeError(
            f"No shape has at most {limits.parameters:,} parameters: the smallest, {smallest.point}, has "
            f"{smallest.parameters:,}; raise --max-parameters to {smallest.parameters}, or list smaller sizes."
        )


MakeSampler: TypeAlias = Callable[[int], BaseSampler]

STARTUP = 8
"""Trials at random before a model of the rewards is fitted."""
SAMPLERS: dict[str, Callable[[int, ShapeSpace, int], BaseSampler]] = {
    "tpe": lambda seed, *_: TPESampler(seed=seed, n_startup_trials=STARTUP),
    "random": lambda seed, *_: RandomSampler(seed=seed),
    "nsga2": lambda seed, *_: NSGAIISampler(seed=seed, population_size=STARTUP),
    "gp": lambda seed, *_: GPSampler(seed=seed, n_startup_trials=STARTUP),
    "kd_nas": lambda seed, space, episode: ControllerSampler(seed, asdict(space.sizes), space.shapes, episode),
}
"""Optuna's that choose among listed values (CMA-ES and quasi-Monte Carlo need ranges), and KD-NAS's controller."""


def make_sampler(name: str, seed: int, space: ShapeSpace, episode: int | None = None) -> BaseSampler:
    """Return one of `SAMPLERS`, by name.

    Args:
        name: The name.
        seed: Where chance comes from.
        space: The shapes.
        episode: Shapes an episode of `kd_nas`; None for 1.
    """
    return SeededByTrial(lambda seed: SAMPLERS[name](seed, space, episode or 1), seed)


class SeededByTrial(BaseSampler):
    """A sampler that is seeded anew for every trial, by the trial's number.

    What a trial proposes depends on the seed, its number and the trials before it, not on which worker asks. With one
    seed for all, workers that start together would all propose the same.

    Args:
        make: Makes the sampler from a seed.
        seed: Where chance comes from.
    """

    def __init__(self, make: MakeSampler, seed: int) -> None:
        self._make = make
        self._seed = seed
        self._sampler = make(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Make the sampler of this trial."""
        # A prime, so that the trials of neighbouring seeds do not draw alike.
        self._sampler = self._make((1_000_003 * self._seed + trial.number) % 2**32)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """As the sampler of this trial does."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler of this trial does."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As the sampler of this trial does."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """As the sampler of the last trial does."""
        self._sampler.after_trial(study, trial, state, values)


TARGET_SHARE = 0.6
EXPONENT = -0.06


def shape_reward(loss: float, latency: float, teacher_latency: float) -> float:
    """Return (1 - L_HS) * (lat(S) / (0.6 * lat(T)))^-0.06.

    At a loss of 0 the reward is 1 for a student that takes 0.6 of its teacher's time, more for a faster one. Above a
    loss of 1 the first factor is negative and the second then prefers the slower student: scale the loss so that an
    untrained student is at about 1.

    Args:
        loss: The hidden-states loss of the student, at least 0.
        latency: The student's time for one forward pass, in the unit of the teacher's, above 0.
        teacher_latency: The teacher's time, above 0.

    Raises:
        ValueError: for a latency that is not above 0.

    Source:
        Comparative study (arXiv 2310.08797) appendix C, equation 12, after KD-NAS (Trivedi et al. 2023).
    """
    if not (latency > 0 and teacher_latency > 0):
        raise ValueError(f"latencies are above 0, not {latency} and {teacher_latency}")
    return float((1 - loss) * (latency / (TARGET_SHARE * teacher_latency)) ** EXPONENT)
