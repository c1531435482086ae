"""Differences of an export's outputs from those of its source: measured, and refused beyond their bounds.

The *source* is the model that is exported. An output's *scale* is its largest value; a difference counts as a share of
that, or of 1 where the scale is below 1. A model *decides* by its highest score: a class, a token, an answer's start.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.core.exports import Differences
from limbeck.core.kinds import kind_of
from limbeck.core.progress import Count, Report, no_progress
from limbeck.core.records import Number
from limbeck.errors import LimbeckError
from limbeck.export.batches import Batch, Runner
from limbeck.export.outputs import HIDDEN, SENTENCE, is_per_token
from limbeck.models import heads
from limbeck.models.sample_texts import Text

BOUNDS = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.25}
"""Largest share by which an output may differ, by the dtype of the weights."""

LEAST_COSINE = 0.95
"""Least mean cosine between the vectors of int8 weights and those of the source."""
LEAST_EQUAL = 0.9
"""Least share of decisions that int8 weights make as the source does."""
_LARGEST_SHARE_OF_VALUES = 0.1
"""Largest difference of a value with int8 weights, as a share of the largest value."""

_NEVER = -1e9
"""Score of padding in question answering, so low that no answer starts or ends there."""


class ExportMismatchError(LimbeckError):
    """An export whose outputs are not those of its source."""

    exit_code = 1


def measure_differences(
    source: Runner,
    export: Runner,
    batches: Sequence[Batch],
    head: heads.Head | None,
    report: Report = no_progress,
    what: str = "Comparing with the source",
) -> Differences:
    """Run both models on the same batches.

    Args:
        source: The reference.
        export: The model that is measured; outputs that it does not give are not compared.
        batches: Sample text.
        head: The head of both.
        report: Receives progress.
        what: The comparison in words, for lines of progress.
    """
    gaps = _Gaps(head)
    for count, batch in enumerate(batches):
        report(count / len(batches), what, Count(count, "batches"))
        gaps.add(batch, source(batch), export(batch))
    return gaps.differences()


def check_differences(differences: Differences, dtype: str, *, bound: float | None = None) -> None:
    """Refuse an export of floating-point weights whose outputs are too far from its source's.

    Args:
        differences: The measured differences.
        dtype: Number format of the exported weights: a key of `BOUNDS`.
        bound: The largest difference that passes, as a share of the largest value (or of 1); None is that of the dtype.

    Raises:
        ExportMismatchError: with the difference and the bound.
    """
    share, output = largest_share(differences)
    if bound is None:
        bound = BOUNDS[dtype]
    if share <= bound:
        return
    difference = differences.largest[output]
    scale = differences.scale[output]
    way_out = "use float32"
    if dtype == "float32":
        way_out = "it was not written: please report the model"
    raise ExportMismatchError(
        f"The export differs from its source by {difference:.3g} in {output}, whose largest value is {scale:.3g}; "
        f"the limit in {dtype} is {bound:g} of the largest value (or of 1, if that is larger); {way_out}."
    )


def check_int8_quality(differences: Differences) -> None:
    """Refuse an int8 export that keeps too little of its source.

    Quality is the share of equal decisions for a model that decides, else the mean cosine of its vectors. For a model
    that labels words it is the lower one of the shares of words and of tokens. For a model that gives single values it
    is 1 less the largest difference, as a share of the largest value.

    Raises:
        ExportMismatchError: with the quality and the bound.
    """
    mean_cosine = differences.cosine.get("mean")
    equal_shares = [differences.equal_decisions, differences.equal_tokens]
    known_shares = [share for share in equal_shares if share is not None]
    if known_shares:
        quality = min(known_shares)
        bound = LEAST_EQUAL
        title = "share of equal decisions"
    elif mean_cosine is not None:
        quality = mean_cosine
        bound = LEAST_COSINE
        title = "mean cosine of the vectors"
    else:
        share, _ = largest_share(differences)
        quality = 1 - share
        bound = 1 - _LARGEST_SHARE_OF_VALUES
        title = "share of the largest value that is kept"
    # A quality that is not a number is not above the bound either.
    if not quality >= bound:
        raise ExportMismatchError(
            f"With int8 weights the {title} is {quality:.3f}, below the limit of {bound:g}; export the model with "
            "--format onnx."
        )


def largest_share(differences: Differences) -> tuple[float, str]:
    """Return the largest difference as a share, and the name of its output.

    It is a share of the output's scale, or of 1 where the scale is below 1. A difference that is not a number is
    infinite.
    """
    shares = []
    for output, difference in differences.largest.items():
        share = math.inf
        if difference is not None and not math.isnan(difference):
            share = difference / max(1.0, differences.scale[output] or 0.0)
        shares.append((share, output))
    return max(shares)


def decides(head: heads.Head | None) -> bool:
    """Return whether a head decides by its highest score; vectors and values decide nothing."""
    return head is not None and not kind_of(head).has_value


class _Gaps:
    """Collects the differences of two models, batch by batch.

    Args:
        head: The head of both.
    """

    def __init__(self, head: heads.Head | None) -> None:
        self._head = head
        self._facts = kind_of(head)
        # What was compared: a text may be in several batches.
        self._batch_count = 0
        self._texts: set[Text] = set()
        self._most_tokens = 0
        # By output the largest difference and the largest value of each batch.
        self._largest: dict[str, list[Tensor]] = {}
        self._scales: dict[str, list[Tensor]] = {}
        # The cosine of each vector. For each decision whether it is equal, and the divergence of its probabilities;
        # the decisions on a text count once, in the first batch that has it.
        self._cosines: list[Tensor] = []
        self._decisions_are_equal: list[Tensor] = []
        self._divergences: list[Tensor] = []
        # The same of all tokens of a head that labels words, whose decisions are on the first token of each word.
        self._tokens_are_equal: list[Tensor] = []
        self._has_words = True

    def add(self, batch: Batch, source: dict[str, Tensor], export: dict[str, Tensor]) -> None:
        """Take in the outputs of both models on a batch, by name."""
        self._batch_count += 1
        is_new = self._take_in_texts(batch)
        self._most_tokens = max(self._most_tokens, int(batch.valid.sum(1).max()))
        # The output whose cosines are measured: sentence vectors, or hidden states where there are none.
        vectors = SENTENCE if SENTENCE in export else HIDDEN
        for name, exported in export.items():
            expected = source[name]
            mask = self._mask_of_values(name, batch)
            real_expected = expected[mask]
            real_exported = exported[mask]
            self._largest.setdefault(name, []).append((real_expected - real_exported).abs().max())
            self._scales.setdefault(name, []).append(real_expected.abs().max())

            if name == vectors:
                self._cosines.append(F.cosine_similarity(real_expected, real_exported, dim=-1))
            if not decides(self._head):
                continue
            if self._facts.has_answers:
                # The end of an answer is chosen among all tokens of a row, so the rows stay whole.
                padding = ~batch.valid
                whole_expected = expected.masked_fill(padding, _NEVER)
                whole_exported = exported.masked_fill(padding, _NEVER)
                self._add_decisions(whole_expected[is_new], whole_exported[is_new])
            elif self._facts.of_words:
                is_equal = expected.argmax(-1) == exported.argmax(-1)
                self._tokens_are_equal.append(is_equal[batch.valid & is_new[:, None]])
                # The other tokens were not trained on, and nobody reads their labels.
                is_word = batch.word_starts & is_new[:, None]
                self._add_decisions(expected[is_word], exported[is_word])
                self._has_words = batch.has_words
            else:
                row_of_value = mask.nonzero()[:, 0]
                value_is_new = is_new[row_of_value]
                self._add_decisions(real_expected[value_is_new], real_exported[value_is_new])

    def _take_in_texts(self, batch: Batch) -> Tensor:
        """Count the texts of a batch; return a bool `[B]`, True for each row whose text is met for the first time."""
        is_new = []
        for text in batch.texts:
            is_new.append(text not in self._texts)
            self._texts.add(text)
        return torch.tensor(is_new, dtype=torch.bool)

    def _mask_of_values(self, name: str, batch: Batch) -> Tensor:
        """Return the values of an output that count: `[B, L]` without padding, which means nothing, or all of `[B]`."""
        if is_per_token(name, self._head):
            return batch.valid
        return torch.ones(len(batch.texts), dtype=torch.bool)

    def _add_decisions(self, source: Tensor, export: Tensor) -> None:
        """Take in the scores of decisions `[..., choices]`, each of which is for the choice of the highest score."""
        if self._facts.has_several:
            # A text may have several classes, each with an answer: yes at a score above 0, else no.
            source = torch.stack([source, torch.zeros_like(source)], -1)
            export = torch.stack([export, torch.zeros_like(export)], -1)
        is_equal = source.argmax(-1) == export.argmax(-1)
        if self._facts.has_several:
            # Most answers are no, so that the text is the decision: all of its answers have to be equal.
            is_equal = is_equal.all(-1)
        self._decisions_are_equal.append(is_equal)
        self._divergences.append(_kl(source, export))

    def differences(self) -> Differences:
        """Return the differences over all batches."""
        cosine: dict[str, Number | None] = {}
        if self._cosines:
            cosines = torch.cat(self._cosines)
            cosine = {"mean": float(cosines.mean()), "lowest": float(cosines.min())}
        equal_decisions = None
        decisions = None
        mean_kl = None
        if self._decisions_are_equal:
            are_equal = torch.cat([each.flatten() for each in self._decisions_are_equal])
            decisions = are_equal.numel()
            # Texts of white space alone have no words.
            if decisions:
                equal_decisions = float(are_equal.float().mean())
                mean_kl = float(torch.cat(self._divergences).mean())
        equal_tokens = None
        if self._tokens_are_equal:
            equal_tokens = float(torch.cat(self._tokens_are_equal).float().mean())
        return Differences(
            texts=len(self._texts),
            batches=self._batch_count,
            tokens=self._most_tokens,
            largest={name: float(torch.stack(values).max()) for name, values in self._largest.items()},
            scale={name: float(torch.stack(values).max()) for name, values in self._scales.items()},
            cosine=cosine,
            equal_decisions=equal_decisions,
            decisions=decisions,
            decided=self._decided(),
            equal_tokens=equal_tokens,
            mean_kl=mean_kl,
        )

    def _decided(self) -> str | None:
        """Return what the decisions are on, in words; None for a decision on each text."""
        if self._facts.of_words:
            return "words" if self._has_words else "tokens"
        if self._facts.has_several:
            return "texts, each with all of its labels"
        if self._facts.has_answers:
            return "starts and ends of answers"
        # A masked language model decides on each token.
        return "tokens" if self._head == "masked_lm" else None


def _kl(source: Tensor, export: Tensor) -> Tensor:
    """Return KL(source ‖ export) of the softmaxes over the last axis, in float64, as a flat list of numbers."""
    log_p = F.log_softmax(source.double(), dim=-1)
    log_q = F.log_softmax(export.double(), dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).flatten()
