"""`check_plan`, the check of a comparison's plan before any of its runs.

A *combination* is a student with a *variant*, which is a method with one layer mapping. Some combinations are
impossible, since not every method fits every shape; the plan says whether these are refused or left out.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from limbeck.comparison.cells import Combination
from limbeck.comparison.methods import Variant
from limbeck.comparison.plan import ComparisonPlan
from limbeck.core import devices, studies
from limbeck.errors import ModelError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.mistakes import at_place
from limbeck.recipe.model_plans import plan_teacher
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.tokenizer_plans import read_alike
from limbeck.recipe.training_arguments import check_training

_STAGE_PLACE = re.compile(r"^(stages\.\d+(\.\w+)*: )+")
"""The beginning of an error that names a place in a recipe, such as `stages.0.method: `; a plan has no such place."""


@dataclass(frozen=True)
class CheckedPlan:
    """A plan whose combinations have been checked.

    Attributes:
        plan: The plan.
        runs: The possible combinations, each with the plan of its runs.
        impossible: The combinations that are left out, each with the reason in one line.
    """

    plan: ComparisonPlan
    runs: tuple[tuple[Combination, RunPlan], ...]
    impossible: tuple[studies.ComparedVariant, ...]

    @property
    def combinations(self) -> list[Combination]:
        """The possible combinations."""
        return [combination for combination, _ in self.runs]

    @property
    def with_text(self) -> RunPlan:
        """The first run that reads text; all runs with stages read the same text."""
        return next(run for _, run in self.runs if run.stages)

    @property
    def with_vectors(self) -> RunPlan:
        """The first run whose student learns finished sentence vectors; without one, the first that reads text."""
        for _, run in self.runs:
            if run.aligned_stage is not None:
                return run
        return self.with_text


@dataclass(frozen=True)
class _Impossible:
    """A combination that cannot be, and the reason in one line."""

    combination: Combination
    reason: str


def check_plan(plan: ComparisonPlan) -> CheckedPlan:
    """Check every combination of a plan.

    Raises:
        LimbeckError: for what is wrong whatever the combination: the teacher, a student, a source, an argument.
        RecipeError: for combinations that cannot be, each with its reason, unless the plan leaves them out; also if
            none is left, or two are the same.
    """
    # Mistakes that concern all combinations come first.
    _check_training(plan)
    devices.choose_device(plan.evaluation.speed.device)
    plan_teacher(plan.teacher)
    for index, student in enumerate(plan.students):
        # A recipe without stages has the mistakes of the student alone, whatever the method.
        recipe = {"teacher": plan.teacher.model_dump(mode="json"), "student": student.in_recipe()}
        with at_place(f"students.{index}"):
            _check_lengths(plan, plan_run(load_recipe(recipe)))

    # Every combination is planned. Those that cannot be are gathered, so that one message names all of them.
    runs: list[tuple[Combination, RunPlan]] = []
    impossible: list[_Impossible] = []
    for combination in _combinations(plan):
        # Whether a combination is possible does not depend on the seed, so the first one is used.
        recipe = combination.recipe(plan, plan.seeds[0])
        try:
            runs.append((combination, plan_run(load_recipe(recipe))))
        except (RecipeError, ModelError) as error:
            # The message may begin with the place of the mistake in a recipe, such as `stages.0.method: `. The user
            # wrote a plan, which has no such place.
            reason = _STAGE_PLACE.sub("", str(error))
            impossible.append(_Impossible(combination, reason))

    # The plan may leave impossible combinations out, as long as a run remains that trains.
    trains_any = any(run.stages for _, run in runs)
    may_leave_out = plan.skip_impossible and trains_any
    if impossible and not may_leave_out:
        raise _impossible_error(impossible, len(runs), skipping=plan.skip_impossible)
    _refuse_same_runs([combination for combination, _ in runs], plan)
    _refuse_other_tokenizers([run for _, run in runs])
    left_out = [studies.ComparedVariant(**entry.combination.parts, reason=entry.reason) for entry in impossible]
    return CheckedPlan(plan, tuple(runs), tuple(left_out))


def _combinations(plan: ComparisonPlan) -> Iterator[Combination]:
    """Yield every student of a plan with every variant: a method with one of its layer mappings and teacher layers."""
    variants: list[Variant] = []
    for method in plan.methods:
        variants += method.variants()
    for student, variant in itertools.product(plan.students, variants):
        yield Combination(student, variant)


def _check_training(plan: ComparisonPlan) -> None:
    """Refuse a streamed corpus, and training arguments that are wrong: the common ones, and those of each method."""
    if plan.corpus.streaming:
        raise RecipeError(
            "corpus.streaming is not possible in a comparison, whose runs all read one built corpus and share a "
            "budget in its tokens; leave corpus.streaming out, and limit the text by corpus.max_documents."
        )
    check_training(plan.training, "training")
    for index, method in enumerate(plan.methods):
        check_training(method.training, f"methods.{index}.training")
        for number, stage in enumerate(method.stages or ()):
            check_training(stage.training, f"methods.{index}.stages.{number}.training")


def _check_lengths(plan: ComparisonPlan, run: RunPlan) -> None:
    """Refuse lengths at which the speed of a model cannot be measured.

    The caller puts the student's place in the plan before the message, which calls the student "it".
    """
    speed = plan.evaluation.speed
    if not speed.enabled:
        return
    shapes = [run.student]
    # Of a teacher that is a file of vectors no model is known, and so no speed either.
    if run.teacher_info.is_known_model:
        shapes.append(run.teacher)
    for shape in shapes:
        if shape.positions is not None and max(speed.lengths) > shape.positions:
            raise RecipeError(
                f"evaluation.speed.lengths {speed.lengths} has a length above the {shape.positions} positions of "
                f"the model; use lengths up to {shape.positions}."
            )


def _refuse_other_tokenizers(runs: Sequence[RunPlan]) -> None:
    """Refuse students that read other tokens than the teacher, or than each other: all runs read the same tokens."""
    shared = runs[0].teacher_info.tokenizer or runs[0].student_plan.tokenizer
    for run in runs:
        if not read_alike(run.student_plan.tokenizer, shared):
            raise RecipeError(
                "All models of a comparison read one corpus of tokens, but these models have different "
                "tokenizers; let the students start from models with the same vocabulary (initialise.from)."
            )


def _impossible_error(impossible: Sequence[_Impossible], possible: int, *, skipping: bool) -> RecipeError:
    """Return the error for combinations that cannot be, those with the same reason together.

    Args:
        impossible: The impossible combinations.
        possible: The number of possible combinations.
        skipping: Whether the plan leaves impossible combinations out already, so that only another plan helps.
    """
    titles_by_reason: dict[str, list[str]] = {}
    for entry in impossible:
        titles = titles_by_reason.setdefault(entry.reason.rstrip("."), [])
        titles.append(entry.combination.title)
    lines = []
    for number, (reason, titles) in enumerate(titles_by_reason.items(), start=1):
        lines.append(f"({number}) {', '.join(titles)}: {reason}")
    way_out = "change the plan" if skipping else "change them, or leave them out with skip_impossible: true"
    count = len(impossible) + possible
    return RecipeError(
        f"{len(impossible)} of {count} combinations are impossible: {'; '.join(lines)}. Please {way_out}."
    )


def _refuse_same_runs(combinations: Sequence[Combination], plan: ComparisonPlan) -> None:
    """Refuse two combinations with the same recipe: the run would be trained once and counted twice."""
    first_by_content: dict[str, Combination] = {}
    for combination in combinations:
        # The other parts of a recipe are the same for all combinations, but for its name.
        recipe = combination.recipe(plan, seed=0)
        content = repr([recipe["student"], recipe["stages"], combination.variant.shares])
        if content in first_by_content:
            first = first_by_content[content]
            raise RecipeError(
                f"'{first.title}' and '{combination.title}' would be the same run; leave one of them out."
            )
        first_by_content[content] = combination
