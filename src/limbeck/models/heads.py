"""Task heads: the class of each, the head that a checkpoint has, and the start of a student's head."""

from typing import Literal, TypeAlias, get_args

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.errors import ModelError
from limbeck.models.families import base_model

Head: TypeAlias = Literal["masked_lm", "classification", "regression", "question_answering"]
"""Heads that can be taught."""
AnyHead: TypeAlias = Literal[Head, "token_classification"]
"""Heads that can be loaded."""

HEADS: tuple[Head, ...] = get_args(Head)
_MAPPINGS = {
    None: transformers.MODEL_MAPPING,
    "masked_lm": transformers.MODEL_FOR_MASKED_LM_MAPPING,
    "classification": transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "regression": transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "question_answering": transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    "token_classification": transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
}
# Ends of the classes that save a checkpoint with each head; the first is the head's class in any family.
_SAVED_BY: dict[AnyHead, tuple[str, ...]] = {
    "masked_lm": ("ForMaskedLM", "ForPreTraining", "WithLMHead"),
    "classification": ("ForSequenceClassification",),
    "regression": ("ForSequenceClassification",),
    "question_answering": ("ForQuestionAnswering",),
    "token_classification": ("ForTokenClassification",),
}


def has_head(config: PreTrainedConfig, head: AnyHead | None) -> bool:
    """Whether a family has such a head."""
    return type(config) in _MAPPINGS[head]


def model_class(config: PreTrainedConfig, head: AnyHead | None = None) -> type[PreTrainedModel]:
    """Return the class of a family's Transformer, with a head or without.

    Raises:
        ModelError: if the family has no such head.
    """
    if head is not None and not has_head(config, head):
        raise ModelError(f"The family {config.model_type} has no {_words(head)} head; choose a method that needs none.")
    found = _MAPPINGS[head][type(config)]
    return found[0] if isinstance(found, (tuple, list)) else found


def head_of(config: PreTrainedConfig) -> AnyHead | None:
    """Return the head that a checkpoint was saved with, by its configuration; None where it is none that is known."""
    saved_by = (list(getattr(config, "architectures", None) or []) or [""])[0]
    head = next((head for head, ends in _SAVED_BY.items() if saved_by.endswith(ends[0])), None)
    return "regression" if head == "classification" and config.num_labels == 1 else head


def check_has_head(name: str, config: PreTrainedConfig, head: Head) -> None:
    """Refuse a checkpoint whose configuration says that it was saved without a head; no weight is read.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        head: The head that is needed.

    Raises:
        ModelError: if the family has no such head, the checkpoint was saved without it, or the number of its outputs
            does not fit the task.
    """
    model_class(config, head)
    saved_by = list(getattr(config, "architectures", None) or [])
    if saved_by and not any(cls.endswith(_SAVED_BY[head]) for cls in saved_by):
        remedy = (
            "give a checkpoint of the pretrained model with its head, or use a method on hidden states or relations"
            if head == "masked_lm"
            else "fine-tune it on the task first"
        )
        raise ModelError(f"'{name}' has no {_words(head)} head (it is a {saved_by[0]}); {remedy}.")
    if head == "classification" and config.num_labels < 2:
        raise ModelError(
            f"'{name}' has {config.num_labels} output, but classification needs 2 or more; use regression."
        )
    if head == "regression" and config.num_labels != 1:
        raise ModelError(f"'{name}' has {config.num_labels} outputs, but regression needs 1; use classification.")


@torch.no_grad()
def copy_head(student: PreTrainedModel, teacher: PreTrainedModel) -> list[str]:
    """Start the student's head, and a pooler below it, from the teacher's, where shapes are equal.

    Args:
        student: Changed in place. Parameters tied to its embeddings are left alone.
        teacher: The model whose head and pooler are taken, as far as it has them.

    Returns:
        The names that were copied.
    """
    own_base, prefix = base_model(student), student.base_model_prefix + "."
    in_base = {id(parameter) for name, parameter in own_base.named_parameters() if not name.startswith("pooler.")}
    theirs = dict(teacher.named_parameters())
    copied = []
    for name, parameter in student.named_parameters():
        source = theirs.get(name)
        if id(parameter) in in_base or source is None or source.shape != parameter.shape:
            continue
        parameter.copy_(source)
        copied.append(name.removeprefix(prefix))
    return copied


def _words(head: str) -> str:
    return {"masked_lm": "masked language model"}.get(head, head.replace("_", " "))
