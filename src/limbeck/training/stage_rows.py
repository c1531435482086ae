"""The rows of a stage with what makes batches of them: the same for one student and for many side by side."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.core.kinds import LabelKind, kind_of
from limbeck.corpus import LabelledSettings, RowMix
from limbeck.corpus.batches.collating import PadCollator
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.rows import AnyCorpus, RowsByLength, held_out_rows, training_rows

_PROBE_ROWS = 2


@dataclass(frozen=True)
class StageRows:
    """The rows of a stage.

    Args:
        train: Rows to train on, replaced and masked as the stage says.
        held_out: Held-out rows; may be empty.
        collator: Makes batches of them.
        mix: Which rows an epoch has; None for every row once.
    """

    train: Any
    held_out: Any
    collator: PadCollator
    mix: RowMix | None

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of a trainer, which measures where there are held-out rows."""
        held_out = self.held_out if len(self.held_out) else None
        return {"train_dataset": self.train, "eval_dataset": held_out, "data_collator": self.collator, "mix": self.mix}

    def probe(self) -> dict[str, Tensor]:
        """Return a batch of a few rows, to see which parameters a gradient reaches."""
        return self.collator([self.train[index] for index in range(min(_PROBE_ROWS, len(self.train)))])


def label_kind(choice: StagePlan) -> LabelKind:
    """Return what the labels of a stage's rows are, as its collator pads them."""
    # The labels of masked text are its masked tokens.
    if choice.mask_tokens > 0 and not choice.pairing.has_labels:
        return "token"
    return choice.pairing.label


def stage_rows(choice: StagePlan, corpus: AnyCorpus, tokenizer: PreTrainedTokenizerBase, seed: int) -> StageRows:
    """Make the rows of a stage.

    Args:
        choice: The stage.
        corpus: Blocks or rows to train on and held-out ones.
        tokenizer: For the padding token and side.
        seed: Decides the rows' replaced and masked tokens.
    """
    masked, replaced = choice.mask_tokens, choice.spec.augment.replace_tokens
    schedule, views = choice.spec.text.schedule, corpus.views
    changes: dict[str, Any] = {"replace_tokens": replaced, "mask_tokens": masked, "seed": seed}
    if isinstance(choice.corpus, LabelledSettings) and kind_of(choice.pairing.task).has_queries:
        changes["documents"] = choice.corpus.documents_per_query
    parts = [training_rows(view, tokenizer, **changes) for view in views]
    mixes = [view.row_mix(seed) for view in views]
    return StageRows(
        train=parts[0] if schedule is None else RowsByLength(parts, mixes, schedule),
        held_out=held_out_rows(corpus, tokenizer, mask_tokens=masked, seed=seed, documents=changes.get("documents")),
        collator=PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side, labels=label_kind(choice)),
        mix=mixes[0] if schedule is None else None,
    )
