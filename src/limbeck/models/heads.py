"""Task heads: the class of each, and the head that a checkpoint has.

A *head* is named by the kind of task that it serves, such as `classification`, or `masked_lm`. Facts about kinds are in
`limbeck.core.kinds`: a *kind of value* is one whose head has a single output, either a value (`regression`) or the
relevance of a document to a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import transformers
from transformers import PreTrainedConfig

from limbeck.core.kinds import KIND_NAMES, KINDS, KindFacts, KindName, kind_of
from limbeck.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Head: TypeAlias = str
"""The name of a head that can be loaded and taught: `masked_lm`, or a kind of task."""

_MASKED_LM: Head = "masked_lm"
HEADS: tuple[Head, ...] = (_MASKED_LM, *KIND_NAMES)
"""The package's heads."""

_MASKED_LM_ENDS = ("ForMaskedLM", "ForPreTraining", "WithLMHead")
"""Ends of the names of classes with a masked language model; the first is the class in any family."""
_MAPPING_OF_END = {
    "ForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
    "ForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "ForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "ForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
}
"""Names in `transformers` of the classes of each family, by the end of their names."""
_CROSS_ENCODER_SETTINGS = ("sentence_transformers", "sbert_ce_default_activation_function")
"""Fields of a configuration in which sentence-transformers keeps settings of a cross-encoder."""


def has_head(config: PreTrainedConfig, head: Head | None) -> bool:
    """Whether a family has such a head."""
    return type(config) in _classes_by_config(head)


def model_class(config: PreTrainedConfig, head: Head | None = None) -> type[PreTrainedModel]:
    """Return the class of a family's Transformer, with a head or without.

    Raises:
        ModelError: if the family has no such head.
    """
    check_family(config, head)
    classes = _classes_by_config(head)[type(config)]
    if isinstance(classes, (tuple, list)):
        # The first is the family's usual class.
        return classes[0]
    return classes


def check_family(config: PreTrainedConfig, head: Head | None) -> None:
    """Refuse a head that a family does not have.

    Raises:
        ModelError: if the family has no such head.
    """
    if head is not None and not has_head(config, head):
        raise ModelError(
            f"The family {config.model_type} has no {_words(head)} head; choose a method that needs no such head."
        )


def _classes_by_config(head: Head | None) -> Mapping[type[PreTrainedConfig], Any]:
    """Return the classes of a head by the configurations of families; without a head those of the Transformer."""
    name = "MODEL_MAPPING"
    if head is not None:
        usual_end = _class_ends(head)[0]
        name = _MAPPING_OF_END[usual_end]
    # Looking up the name imports the code of models, so it is done only when it is needed.
    classes: Mapping[type[PreTrainedConfig], Any] = getattr(transformers, name)
    return classes


def _class_ends(head: Head) -> tuple[str, ...]:
    """Return the ends of the names of classes that have a head; the first is today's usual one."""
    end = kind_of(head).head
    if end is None:
        return _MASKED_LM_ENDS
    return (end,)


def head_of(config: PreTrainedConfig) -> Head | None:
    """Return the head that a checkpoint was saved with, by its configuration; None for no head or an unknown one."""
    saved_by = _saved_by(config) or ""
    heads = []
    for head in HEADS:
        # The first is the end of the names of today's classes.
        usual_end = _class_ends(head)[0]
        if saved_by.endswith(usual_end):
            heads.append(head)
    if not heads:
        return None
    if len(heads) == 1:
        return heads[0]
    # Several kinds that score a whole text share a class; the number of outputs and the loss tell them apart.
    if config.num_labels == 1:
        kind = kind_of_value(config)
        # Where nothing tells a value from the relevance of a document, a value is assumed.
        return _KIND_OF_VALUES if kind is None else kind
    heads_of_classes = [head for head in heads if kind_of(head).has_classes]
    problem_type = getattr(config, "problem_type", None)
    for head in heads_of_classes:
        if kind_of(head).problem_type == problem_type:
            return head
    return heads_of_classes[0]


def unknown_head(config: PreTrainedConfig) -> str | None:
    """Return the class that saved a checkpoint, by its name, if it has a head that is none of `HEADS`.

    Such a class is `LlamaForCausalLM`. The result is None for a checkpoint without a head, and for one of `HEADS`.
    """
    saved_by = _saved_by(config)
    if saved_by is None or head_of(config) is not None:
        return None
    has_a_head = "For" in saved_by or "Head" in saved_by
    return saved_by if has_a_head else None


def _saved_by(config: PreTrainedConfig) -> str | None:
    """Return the name of the class that saved a checkpoint; None where its configuration does not say."""
    architectures = getattr(config, "architectures", None) or [None]
    name: str | None = architectures[0]
    return name


def kind_of_value(config: PreTrainedConfig) -> KindName | None:
    """Return the kind of task of a head with one output, by its configuration; None where that does not tell it.

    The output is either a value (regression) or the relevance of a document. Its name (`id2label`) decides. Without a
    known name, a recorded loss (`problem_type`) means a value. A cross-encoder of sentence-transformers is an
    exception: its output may be either, whatever the loss. Most rerankers on the Hub record neither name nor loss.
    """
    names_of_outputs = config.id2label or {}
    output = names_of_outputs.get(0)
    for kind in KIND_NAMES:
        if KINDS[kind].has_value and KINDS[kind].output == output:
            return kind
    has_loss = getattr(config, "problem_type", None) is not None
    is_cross_encoder = any(getattr(config, key, None) for key in _CROSS_ENCODER_SETTINGS)
    if has_loss and not is_cross_encoder:
        return _KIND_OF_VALUES
    return None


_KIND_OF_VALUES = next(kind for kind in KIND_NAMES if KINDS[kind].has_value and not KINDS[kind].has_queries)
"""The kind whose head gives a value, rather than the relevance of a document."""


def check_has_head(name: str, config: PreTrainedConfig, head: Head) -> None:
    """Refuse a checkpoint without the head of a task, or with a head that does not fit the task; no weight is read.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        head: The head that is needed, by the kind of task that it serves.

    Raises:
        ModelError: if the family has no such head, the checkpoint was saved without it, or the number of its outputs
            or the loss that it was fine-tuned by does not fit the task.
    """
    check_family(config, head)
    saved_by = _saved_by(config)
    architectures = getattr(config, "architectures", None) or []
    # Without a name nothing is known of the head; loading it finds out.
    if saved_by and not any(cls.endswith(_class_ends(head)) for cls in architectures):
        way_out = "fine-tune it on the task first"
        if head == _MASKED_LM:
            way_out = (
                "give a checkpoint of the pretrained model that has its head, or use a method on hidden states or "
                "relations"
            )
        raise ModelError(f"'{name}' has no {_words(head)} head (it is a {saved_by}); {way_out}.")
    # The outputs have to fit the task: several classes, or one value.
    facts = kind_of(head)
    if facts.has_classes:
        _check_classes(name, config, head, facts)
    if facts.has_value:
        _check_value(name, config, head, facts)


def _check_classes(name: str, config: PreTrainedConfig, kind: KindName, facts: KindFacts) -> None:
    """Refuse a checkpoint for a task with classes, if its head has a single output or was trained by another loss."""
    if config.num_labels < 2:
        raise ModelError(
            f"'{name}' has {config.num_labels} output, but {kind} needs 2 or more; set the task's kind to regression."
        )
    problem_type = getattr(config, "problem_type", None)
    if problem_type is None or facts.problem_type is None:
        # No loss is recorded, or the kind has no loss of its own.
        return
    if problem_type != facts.problem_type:
        raise ModelError(
            f"'{name}' was fine-tuned for {_words(problem_type)} (problem_type of its config.json), but the task "
            f"is {kind}; choose the kind of task that the model was fine-tuned for, or a model with problem_type "
            f"{facts.problem_type}."
        )


def _check_value(name: str, config: PreTrainedConfig, kind: KindName, facts: KindFacts) -> None:
    """Refuse a checkpoint for a task with one output, if its head has several, or was trained for another such task.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        kind: The kind of the task.
        facts: Facts about this kind.
    """
    if config.num_labels != 1:
        raise ModelError(
            f"'{name}' has {config.num_labels} outputs, but {kind} needs exactly 1; set the task's kind to "
            "classification."
        )
    trained_kind = kind_of_value(config)
    if trained_kind is not None and trained_kind != kind:
        raise ModelError(
            f"'{name}' was fine-tuned for {_words(trained_kind)} (id2label or problem_type of its config.json), but "
            f"the task is {kind}; give a model that was fine-tuned for {kind} or, if its output does score that, "
            f'rename the output in its config.json: id2label {{"0": "{facts.output}"}}.'
        )


def _words(head: str) -> str:
    """Return a head, or the `problem_type` of one, in words."""
    if head == _MASKED_LM:
        return "masked language model"
    return head.replace("_", " ")
