"""What a stage trains and reads, made from its plan: the same for one student and for many side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.corpus import Corpus, LabelKind, LabelledCorpus, PadCollator
from limbeck.models.families import base_model, family_of
from limbeck.recipe.plan import StageChoice
from limbeck.recipe.training_arguments import bf16_is_fast
from limbeck.training.rows import held_out_rows, training_rows

_PROBE_ROWS = 2


@dataclass(frozen=True)
class StageRows:
    """The rows of a stage.

    Args:
        train: Rows to train on, replaced and masked as the stage says.
        held_out: Held-out rows; may be empty.
        collator: Makes batches of them.
    """

    train: Any
    held_out: Any
    collator: PadCollator

    def probe(self) -> dict[str, Tensor]:
        """Return a batch of a few rows, to see which parameters a gradient reaches."""
        return self.collator([self.train[index] for index in range(min(_PROBE_ROWS, len(self.train)))])


def stage_rows(
    corpus: Corpus | LabelledCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    replace_tokens: float,
    mask_tokens: float,
    labels: LabelKind,
    seed: int,
) -> StageRows:
    """Make the rows of a stage.

    Args:
        corpus: Blocks or rows to train on and held-out ones.
        tokenizer: For the padding token and side.
        replace_tokens: Share of tokens replaced by random words.
        mask_tokens: Share of tokens masked, anew every epoch.
        labels: What the rows' labels are, as `PadCollator` names it.
        seed: Decides what is replaced and masked.
    """
    return StageRows(
        train=training_rows(corpus, tokenizer, replace_tokens=replace_tokens, mask_tokens=mask_tokens, seed=seed),
        held_out=held_out_rows(corpus, tokenizer, mask_tokens=mask_tokens, seed=seed),
        collator=PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side, labels=labels),
    )


def prepare_student(student: PreTrainedModel, *, freeze_embeddings: bool) -> None:
    """Let all of a student be trained, but for its embeddings where the stage freezes them."""
    student.requires_grad_(True)
    if freeze_embeddings:
        for path in family_of(student.config).embeddings:
            base_model(student).get_submodule(path).requires_grad_(False)


def teacher_dtype(choice: StageChoice) -> str:
    """Return the number format that a stage's teacher runs in: what the recipe says, else that of the training."""
    asked = choice.teacher.spec.dtype
    if asked != "auto":
        return asked
    training = choice.spec.training
    return "bfloat16" if training.get("bf16", bf16_is_fast() and not training.get("fp16")) else "float32"
