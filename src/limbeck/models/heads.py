"""Task heads: the class of each, and the head that a checkpoint has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import transformers
from transformers import PreTrainedConfig

from limbeck.core.kinds import KIND_NAMES, KINDS, KindName, kind_of
from limbeck.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Head: TypeAlias = str
"""The name of a head that can be loaded and taught: `masked_lm`, or a kind of task."""

HEADS: tuple[Head, ...] = ("masked_lm", *KIND_NAMES)
"""The package's heads."""
_BY_END = {
    "ForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
    "ForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "ForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "ForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
}
_MASKED_LM = ("ForMaskedLM", "ForPreTraining", "WithLMHead")


def has_head(config: PreTrainedConfig, head: Head | None) -> bool:
    """Whether a family has such a head."""
    return type(config) in _mapping(head)


def model_class(config: PreTrainedConfig, head: Head | None = None) -> type[PreTrainedModel]:
    """Return the class of a family's Transformer, with a head or without.

    Raises:
        ModelError: if the family has no such head.
    """
    check_family(config, head)
    classes = _mapping(head)[type(config)]
    return classes[0] if isinstance(classes, (tuple, list)) else classes


def check_family(config: PreTrainedConfig, head: Head | None) -> None:
    """Refuse a head that a family has not.

    Raises:
        ModelError: if the family has no such head.
    """
    if head is not None and not has_head(config, head):
        raise ModelError(f"The family {config.model_type} has no {_words(head)} head; choose a method that needs none.")


def _mapping(head: Head | None) -> Mapping[type[PreTrainedConfig], Any]:
    """Return the classes of a head by the configurations of families; without a head those of the Transformer."""
    # Imported here: it brings what all models need, and configurations alone do without.
    class_by_config: Mapping[type[PreTrainedConfig], Any] = getattr(
        transformers, "MODEL_MAPPING" if head is None else _BY_END[_class_ends(head)[0]]
    )
    return class_by_config


def _class_ends(head: Head) -> tuple[str, ...]:
    """Return the ends of the classes that save a checkpoint with a head; the first is its class in any family."""
    end = kind_of(head).head
    return _MASKED_LM if end is None else (end,)


def head_of(config: PreTrainedConfig) -> Head | None:
    """Return the head that a checkpoint was saved with, by its configuration; None where it is none that is known."""
    saved_by = (list(getattr(config, "architectures", None) or []) or [""])[0]
    head = next((head for head in HEADS if saved_by.endswith(_class_ends(head)[0])), None)
    if head != "classification":
        return head
    if config.num_labels == 1:
        return kind_of_value(config) or "regression"
    several = getattr(config, "problem_type", None) == KINDS["multi_label"].problem_type
    return "multi_label" if several else head


def kind_of_value(config: PreTrainedConfig) -> KindName | None:
    """Return whether the one output of a head is a value or the relevance of a document, where its configuration says.

    Its name (`id2label`) says so; else a `problem_type` of regression is a value's, save beside settings of a
    cross-encoder, which may score either. None where nothing is said, as of most rerankers on the Hub.
    """
    name = (config.id2label or {}).get(0)
    for kind in KIND_NAMES:
        if KINDS[kind].has_value and KINDS[kind].output == name:
            return kind
    settings = ("sentence_transformers", "sbert_ce_default_activation_function")
    if getattr(config, "problem_type", None) is None or any(getattr(config, key, None) for key in settings):
        return None
    return "regression"


def check_has_head(name: str, config: PreTrainedConfig, head: Head) -> None:
    """Refuse a checkpoint whose configuration says that it was saved without a head; no weight is read.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        head: The head that is needed.

    Raises:
        ModelError: if the family has no such head, the checkpoint was saved without it, or the number of its outputs
            or the loss that it was fine-tuned by does not fit the task.
    """
    check_family(config, head)
    saved_by = list(getattr(config, "architectures", None) or [])
    if saved_by and not any(cls.endswith(_class_ends(head)) for cls in saved_by):
        remedy = (
            "give a checkpoint of the pretrained model that has its head, or use a method on hidden states or relations"
            if head == "masked_lm"
            else "fine-tune it on the task first"
        )
        raise ModelError(f"'{name}' has no {_words(head)} head (it is a {saved_by[0]}); {remedy}.")
    kind = kind_of(head)
    if kind.has_classes and config.num_labels < 2:
        raise ModelError(f"'{name}' has {config.num_labels} output, but {head} needs 2 or more; use regression.")
    problem_type = getattr(config, "problem_type", None)
    if kind.has_classes and kind.problem_type is not None and problem_type not in (None, kind.problem_type):
        raise ModelError(
            f"'{name}' was fine-tuned for {_words(problem_type)} (problem_type of its config.json), but the task is "
            f"{head}; choose the kind of task that it was fine-tuned for, or a model of problem_type "
            f"{kind.problem_type}."
        )
    if kind.has_value and config.num_labels != 1:
        raise ModelError(f"'{name}' has {config.num_labels} outputs, but {head} needs 1; use classification.")
    other = kind_of_value(config) if kind.has_value else None
    if other not in (None, head):
        raise ModelError(
            f"'{name}' was fine-tuned for {_words(str(other))} (id2label or problem_type of its config.json), but the "
            f"task is {head}; give a model that was fine-tuned for it or, if that is what the output scores, rename it "
            f'there: id2label {{"0": "{kind.output}"}}.'
        )


def _words(head: str) -> str:
    return {"masked_lm": "masked language model"}.get(head, head.replace("_", " "))
