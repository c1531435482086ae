"""A method as users see it: its options, its terms, and a recipe with every option written out, to edit and run."""

from dataclasses import asdict
from typing import Any

import yaml

from limbeck.core.kinds import kind_of
from limbeck.errors import RecipeError
from limbeck.methods.composition import Method, Pairing, Term, read_card
from limbeck.methods.registry import METHODS, read_method
from limbeck.models.blueprint import parse_blueprint, student_config
from limbeck.models.families import shape_of

_SHAPES = ("6x384", "6x768")
TEXT_TRAINING = {"max_steps": 10000, "per_device_train_batch_size": 32, "learning_rate": 5e-4, "warmup_steps": 0.05}
# What MLKD-BERT (its table 9) takes for most tasks, within what BERT-PKD tried.
TASK_TRAINING = {"num_train_epochs": 10, "per_device_train_batch_size": 32, "learning_rate": 2e-5, "warmup_steps": 0.1}


def method_terms(name: str) -> tuple[str, list[tuple[str, list[Term]]]]:
    """Compose a method for BERT-base and a student of a usual shape.

    Args:
        name: The method.

    Returns:
        The student's shape, and for each of the method's stages its method and terms.
    """
    from transformers import BertConfig

    method = METHODS[name]
    teacher = BertConfig()
    for shape in _SHAPES:
        student = shape_of(student_config(parse_blueprint(shape), teacher))
        pairing = Pairing(student, shape_of(teacher), method.tasks[0])
        try:
            stages = [(stage["name"], *read_method(stage)) for stage in stages_of(method)]
            return shape, [(title, taught.compose(options, pairing)) for title, taught, options in stages]
        except RecipeError:
            if shape == _SHAPES[-1]:
                raise
    raise AssertionError("the last shape returns or raises")


def stages_of(method: Method[Any]) -> list[dict[str, Any]]:
    """Return the stages that make a method up, each a method's name and options."""
    return [dict(stage) for stage in method.stages] or [{"name": method.name}]


def method_recipe(name: str) -> str:
    """Write a recipe that trains with a method, as YAML.

    Args:
        name: The method.

    Returns:
        A whole recipe; teacher, sources and steps are for the user to change.
    """
    return yaml.safe_dump(_recipe(name), sort_keys=False, allow_unicode=True, width=100)


def describe_method(name: str) -> dict[str, Any]:
    """Return a method as plain values: its card, citation and options, the terms that it comes to, and a recipe.

    Args:
        name: The method.
    """
    method = METHODS[name]
    shape, composed = method_terms(name)
    terms = [
        {
            "stage": number,
            "method": stage,
            "weight": term.weight,
            "objective": term.objective,
            "student": [str(key) for key in term.student],
            "teacher": [str(key) for key in term.teacher],
        }
        for number, (stage, found) in enumerate(composed, start=1)
        for term in found
    ]
    # Other methods may make up its stages.
    used = dict.fromkeys(stage["name"] for stage in stages_of(method))
    options = {
        f"{'' if other == name else f'{other}.'}{key}": field.description or ""
        for other in used
        for key, field in METHODS[other].options.model_fields.items()
    }
    return {
        "name": name,
        "summary": method.summary,
        "citation": None if method.citation is None else asdict(method.citation),
        "card": read_card(name) or f"# {name}\n\n{method.summary}\n",  # One from a plugin has no card.
        "options": options,
        "student": shape,
        "terms": terms,
        "recipe": _recipe(name),
    }


def _recipe(name: str) -> dict[str, Any]:
    method = METHODS[name]
    shape, _ = method_terms(name)
    task, labelled = method.tasks[0], method.tasks[0] != "text"
    corpus: dict[str, Any] = {"sources": ["train.tsv" if labelled else "installed-docs"], "length": 128}
    if kind_of(task).has_queries:
        corpus |= {"sources": ["train.jsonl"], "task": {"kind": task, "document_columns": ["positive", "negatives"]}}
    elif labelled:
        corpus |= {"text_column": "sentence1", "task": {"kind": task, "pair_column": "sentence2"}}
    stages = []
    for number, stage in enumerate(stages_of(method), start=1):
        written = {"name": stage["name"], **_written_options(stage)}
        title = {} if len(method.stages) < 2 else {"name": f"stage-{number}"}
        stages.append({**title, "method": written, "training": dict(TASK_TRAINING if labelled else TEXT_TRAINING)})
    return {
        "name": name.replace("_", "-"),
        "output": f"runs/{name.replace('_', '-')}",
        "teacher": {"model": "runs/fine-tuned-teacher" if labelled else "google-bert/bert-base-uncased"},
        "student": {"shape": shape},
        "corpus": corpus,
        "stages": stages,
    }


def _written_options(stage: dict[str, Any]) -> dict[str, Any]:
    """Every option of a stage's method that means something there, with its value."""
    method, options = read_method(stage)
    elsewhere = {
        name
        for name, field in method.options.model_fields.items()
        if "stage" in stage and (field.description or "").startswith(f"Stage {3 - stage['stage']}:")
    }
    return options.model_dump(mode="json", exclude=elsewhere)
