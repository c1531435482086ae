"""The recipes that can be searched, and their variants with another value of an option.

A recipe has *stages*, each with a method and its options. A search varies one option, such as `mapping` or
`teacher_layer`, in all stages whose method has it.
"""

from typing import Any

from limbeck.errors import RecipeError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.schema import Recipe


def searched_stages(recipe: Recipe, option: str) -> list[int]:
    """Return the stages whose method has an option, counted from 0."""
    methods = methods_with(option)
    return [index for index, stage in enumerate(recipe.stages) if stage.method["name"] in methods]


def check_has_option(recipe: Recipe, option: str, lack: str) -> None:
    """Refuse a recipe in which no stage's method has an option.

    Args:
        recipe: With stages.
        option: The option.
        lack: What is said of a method without it in the message, for example `takes no layer mapping`.

    Raises:
        RecipeError: naming the methods that have it.
    """
    if searched_stages(recipe, option):
        return
    names = dict.fromkeys(f"'{stage.method['name']}'" for stage in recipe.stages)
    raise RecipeError(
        f"{' and '.join(names)} {lack}, which this search chooses; use one of these methods: "
        f"{', '.join(methods_with(option))}."
    )


def methods_with(option: str) -> list[str]:
    """Return the methods that have an option."""
    return [name for name, method in METHODS.items() if option in method.options.model_fields]


def with_option(recipe: Recipe, option: str, value: Any) -> Recipe:
    """Return a recipe with another value of an option, wherever a method has it; nothing else is changed."""
    # A change is text that is read as YAML, in which numbers, names and lists look as Python writes them.
    changes = [f"stages.{index}.method.{option}={value}" for index in searched_stages(recipe, option)]
    return load_recipe(recipe, changes)


def check_text_only(plan: RunPlan) -> None:
    """Refuse a recipe whose students cannot be compared on held-out text after the same steps.

    Raises:
        RecipeError: for one without stages, with a stage that ends after some minutes, or with one that learns from
            labelled rows.
    """
    if not plan.stages:
        raise RecipeError("The recipe has no stages, so candidates would learn nothing; give the recipe a stage.")
    for stage in plan.stages:
        if "max_minutes" in stage.spec.training:
            raise RecipeError(
                f"Stage '{stage.spec.title}' has max_minutes, but all candidates have to take the same number of "
                "steps; give max_steps in its place."
            )
        if stage.pairing.has_labels:
            raise RecipeError(
                f"Stage '{stage.spec.title}' learns from labelled rows ({stage.pairing.task}), but candidates are "
                "compared on text; leave corpus.task out for the search, and then use the result of the search in "
                "this recipe."
            )


def check_has_layers(plan: RunPlan, reader: str) -> None:
    """Refuse a teacher without layers, such as stored outputs.

    Args:
        plan: The plan of a candidate's run.
        reader: What reads the layers, for the message, such as `--loss hidden_states`.

    Raises:
        RecipeError: for a teacher that is no model.
    """
    teacher = plan.teacher_info
    if not teacher.is_read:
        raise RecipeError(
            f"{reader} reads the layers of the teacher, but {teacher.facts.title} have none; leave {reader} out, "
            "or give the teacher's own model as teacher.model."
        )


def check_reads_model(recipe: Recipe, searched: str) -> None:
    """Refuse a recipe whose teacher has only outputs of whole texts, for a search among its layers.

    Args:
        recipe: The recipe.
        searched: What is searched for, such as `a layer mapping`.

    Raises:
        RecipeError: for stored outputs, and for a teaching in place of a model.
    """
    teacher = recipe.teacher
    has_outputs_alone = teacher.stored is not None or teacher.targets is not None or teacher.teaching is not None
    # With `cache` there is a model, but the stages learn from its outputs as the run has stored them.
    if not has_outputs_alone and not teacher.cache:
        return
    raise RecipeError(
        f"A search for {searched} reads the layers of the teacher, but the recipe's teacher is a store, which has "
        "none; give the teacher's own model as teacher.model, without a store."
    )


def check_has_teacher_model(recipe: Recipe) -> None:
    """Refuse a teacher of which only outputs are known, for a search that compares students with its model.

    Args:
        recipe: The recipe.

    Raises:
        RecipeError: for a file of targets, and for a store without the files of a model.
    """
    teacher = recipe.teacher
    if teacher.has_files:
        return
    place = teacher.targets or teacher.stored
    raise RecipeError(
        f"A search for a student's shape compares the latency of each shape with that of the teacher, but '{place}' "
        "has only a teacher's outputs; give the teacher's own model as teacher.model, or a store that `limbeck teach` "
        "made of it."
    )


def check_only_stage(plan: RunPlan, full_training_option: str) -> None:
    """Refuse a recipe of several stages, for a search that stops its worse candidates early.

    Args:
        plan: The plan of a candidate's run.
        full_training_option: The option that makes a search train all candidates to the end, as a way out in messages.

    Raises:
        RecipeError: for several stages.
    """
    if len(plan.stages) > 1:
        raise RecipeError(
            f"The recipe has {len(plan.stages)} stages, but candidates can be stopped early only in a recipe with "
            f"a single stage; give {full_training_option}, or a recipe with one stage."
        )


def steps_of_only_stage(plan: RunPlan, full_training_option: str) -> int:
    """Return the steps of a recipe's only stage, for a search that stops its worse candidates early.

    Args:
        plan: The plan of a candidate's run.
        full_training_option: The option that makes a search train all candidates to the end, as a way out in messages.

    Raises:
        RecipeError: for several stages, or a stage that counts epochs.
    """
    check_only_stage(plan, full_training_option)
    # Unset, or -1 as in transformers, means that the training counts epochs.
    steps = int(plan.stages[0].spec.training.get("max_steps") or -1)
    if steps < 1:
        raise RecipeError(
            f"The recipe counts epochs, but candidates are stopped early after a number of steps; give --steps, or "
            f"{full_training_option}."
        )
    return steps
