"""`StageRows`: the rows of a stage, and the collator that makes batches of them, for one student or for many."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from limbeck.core.kinds import LabelKind, kind_of
from limbeck.corpus import LabelledSettings, RowMix, Tokenizers
from limbeck.corpus.batches.collating import PadCollator
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.rows import AnyCorpus, RowsByLength, held_out_rows, training_rows

_PROBE_ROWS = 2
"""Rows of the batch that `freeze_unreached` runs to see which parameters a gradient reaches."""


@dataclass(frozen=True)
class StageRows:
    """The rows of a stage.

    Args:
        train: Rows to train on, their tokens replaced and masked as the stage says.
        held_out: Held-out rows; may be empty.
        collator: Makes batches of them.
        mix: Draws the rows of an epoch from several sources. None for every row once, and for rows of several lengths,
            which have a mix for each length.
    """

    train: Any
    held_out: Any
    collator: PadCollator
    mix: RowMix | None

    def arguments(self) -> dict[str, Any]:
        """Return the rows as keyword arguments of a trainer, which measures only if there are held-out rows."""
        held_out = self.held_out if len(self.held_out) > 0 else None
        return {"train_dataset": self.train, "eval_dataset": held_out, "data_collator": self.collator, "mix": self.mix}

    def probe(self) -> dict[str, Tensor]:
        """Return a batch of a few rows, to see which parameters a gradient reaches."""
        count = min(_PROBE_ROWS, len(self.train))
        return self.collator([self.train[index] for index in range(count)])


def label_kind(stage: StagePlan) -> LabelKind:
    """Return the kind of the labels of a stage's rows, by which its collator pads them."""
    # The labels of masked text are its masked tokens.
    if stage.mask_tokens > 0 and not stage.pairing.has_labels:
        return "token"
    # The labels of words also mark the tokens that are scored. Other rows without labels have no such column.
    if not stage.pairing.labelled and not kind_of(stage.pairing.task).of_words:
        return "none"
    return stage.pairing.label


def stage_rows(stage: StagePlan, corpus: AnyCorpus, tokenizers: Tokenizers, seed: int) -> StageRows:
    """Make the rows of a stage.

    Args:
        stage: The stage.
        corpus: Blocks or rows to train on and held-out ones.
        tokenizers: Those of its two models, for their padding.
        seed: Decides the rows' replaced and masked tokens.
    """
    # Rankings compare the documents of a query, so these are read together.
    documents: int | None = None
    if isinstance(stage.corpus, LabelledSettings) and kind_of(stage.pairing.task).has_queries:
        documents = stage.corpus.documents_per_query

    # A schedule trains on shorter rows first: the corpus has a view for each length. Without one it has a single view.
    rows_by_length = []
    for view in corpus.views:
        rows = training_rows(
            view,
            tokenizers.student,
            replace_tokens=stage.spec.augment.replace_tokens,
            mask_tokens=stage.mask_tokens,
            seed=seed,
            documents=documents,
        )
        rows_by_length.append(rows)
    mixes = [view.row_mix(seed) for view in corpus.views]
    schedule = stage.spec.text.schedule
    if schedule is None:
        train = rows_by_length[0]
        mix = mixes[0]
    else:
        # The rows of each length come with their own mix.
        train = RowsByLength(rows_by_length, mixes, schedule)
        mix = None
    return StageRows(
        train=train,
        held_out=held_out_rows(
            corpus, tokenizers.student, mask_tokens=stage.mask_tokens, seed=seed, documents=documents
        ),
        collator=pad_collator(tokenizers, label_kind(stage)),
        mix=mix,
    )


def pad_collator(tokenizers: Tokenizers, labels: LabelKind = "none") -> PadCollator:
    """Return what makes batches of rows, with the inputs of student and teacher.

    Args:
        tokenizers: Those of the two models.
        labels: Kind of the labels.

    Raises:
        CorpusError: for a tokenizer without a padding token.
    """
    teacher_pad_token_id = None
    if tokenizers.teacher is not None:
        # A collator of the teacher's rows alone refuses a tokenizer that cannot pad.
        teacher_pad_token_id = PadCollator(tokenizers.teacher.pad_token_id).pad_token_id
    return PadCollator(tokenizers.student.pad_token_id, labels=labels, teacher_pad_token_id=teacher_pad_token_id)
