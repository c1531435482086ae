"""Differences of an export's outputs from those of its source: measured, and refused beyond their bounds."""

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
"""Largest difference of an output, as a share of its largest value (of 1 where that is smaller), by dtype."""

LEAST_COSINE = 0.95
"""Mean cosine of the vectors that int8 weights must keep of the source."""
LEAST_EQUAL = 0.9
"""Share of the decisions that int8 weights must keep of the source."""

_NEVER = -1e9
"""Score of padding, where no answer starts or ends."""


class ExportMismatchError(LimbeckError):
    """An export whose outputs are not those of its source."""

    exit_code = 1


def measure_differences(
    source: Runner, export: Runner, batches: Sequence[Batch], head: heads.Head | None, report: Report = no_progress
) -> Differences:
    """Run both models on the same batches.

    Args:
        source: The reference.
        export: The model that is measured; outputs that it does not give are not compared.
        batches: Sample text.
        head: The head of both.
        report: Receives progress.
    """
    gaps = _Gaps(head)
    for count, batch in enumerate(batches):
        report(count / len(batches), "Comparing with the source", Count(count, "batches"))
        gaps.add(batch, source(batch), export(batch))
    return gaps.differences(batches)


def check_differences(differences: Differences, dtype: str, *, bound: float | None = None) -> None:
    """Refuse an export of floating-point weights whose outputs are too far from its source's.

    Args:
        differences: The measured differences.
        dtype: Number format of the exported weights: a key of `BOUNDS`.
        bound: Another than that of the dtype.

    Raises:
        ExportMismatchError: with the difference and the bound.
    """
    share, output = largest_share(differences)
    if bound is None:
        bound = BOUNDS[dtype]
    if share <= bound:
        return
    way_out = "use float32"
    if dtype == "float32":
        way_out = "it was not written: please report the model"
    raise ExportMismatchError(
        f"The export differs from its source by {differences.largest[output]:.3g} in {output}, whose largest value is "
        f"{differences.scale[output]:.3g}; in {dtype} {bound:g} of that (or of 1) is the limit; {way_out}."
    )


def check_int8_quality(differences: Differences) -> None:
    """Refuse an int8 export that keeps too little of its source.

    Raises:
        ExportMismatchError: with the share that is kept and the bound.
    """
    mean_cosine = differences.cosine.get("mean")
    if differences.equal_decisions is not None:
        quality = differences.equal_decisions
        bound = LEAST_EQUAL
        title = "share of equal decisions"
    elif mean_cosine is not None:
        quality = mean_cosine
        bound = LEAST_COSINE
        title = "mean cosine of the vectors"
    else:
        share, _ = largest_share(differences)
        quality = 1 - share
        bound = LEAST_EQUAL
        title = "share of the largest value that is kept"
    if not quality >= bound:  # True for NaN too.
        raise ExportMismatchError(
            f"With int8 weights the {title} is {quality:.3f}, below {bound:g}; export the model with --format onnx."
        )


def largest_share(differences: Differences) -> tuple[float, str]:
    """Return the largest difference as a share of its output's scale, or of 1 where that is below; and the output.

    A difference that is not a number counts as an infinite share.
    """
    shares = []
    for output, difference in differences.largest.items():
        share = math.inf
        if difference is not None and not math.isnan(difference):
            share = difference / max(1.0, differences.scale[output] or 0.0)
        shares.append((share, output))
    return max(shares)


class _Gaps:
    """Collects the differences of two models, batch by batch.

    Args:
        head: The head of both.
    """

    def __init__(self, head: heads.Head | None) -> None:
        self._head = head
        self._facts = kind_of(head)
        # Of each batch: the largest difference and the largest value, by output.
        self._largest: dict[str, list[Tensor]] = {}
        self._scales: dict[str, list[Tensor]] = {}
        # Of each vector its cosine; of each decision whether it is equal, and the divergence of its probabilities.
        self._cosines: list[Tensor] = []
        self._equal: list[Tensor] = []
        self._divergences: list[Tensor] = []

    def add(self, batch: Batch, source: dict[str, Tensor], export: dict[str, Tensor]) -> None:
        """Take in the outputs of both models on a batch, by name."""
        vectors = SENTENCE if SENTENCE in export else HIDDEN
        for name, exported in export.items():
            expected = source[name]
            if is_per_token(name, self._head):
                real_expected = expected[batch.valid]
                real_exported = exported[batch.valid]
            else:
                real_expected = expected
                real_exported = exported
            self._largest.setdefault(name, []).append((real_expected - real_exported).abs().max())
            self._scales.setdefault(name, []).append(real_expected.abs().max())

            if name == vectors:
                self._cosines.append(F.cosine_similarity(real_expected, real_exported, dim=-1))
            if self._head is None or self._facts.has_value:
                continue  # Vectors and values decide nothing.
            if self._facts.has_answers:
                # An answer's end is chosen among all tokens of a row, so the rows stay whole.
                padding = ~batch.valid
                self._add_decisions(expected.masked_fill(padding, _NEVER), exported.masked_fill(padding, _NEVER))
            else:
                self._add_decisions(real_expected, real_exported)

    def _add_decisions(self, source: Tensor, export: Tensor) -> None:
        """Take in the scores of decisions: the highest of the last axis is the one that is made."""
        if self._facts.has_several:
            # Each class is a decision by itself, as between scores z and 0.
            source = torch.stack([source, torch.zeros_like(source)], -1)
            export = torch.stack([export, torch.zeros_like(export)], -1)
        self._equal.append(source.argmax(-1) == export.argmax(-1))
        self._divergences.append(_kl(source, export))

    def differences(self, batches: Sequence[Batch]) -> Differences:
        """Return the differences, given the batches that were taken in."""
        cosine: dict[str, Number | None] = {}
        if self._cosines:
            cosines = torch.cat(self._cosines)
            cosine = {"mean": float(cosines.mean()), "lowest": float(cosines.min())}
        equal_decisions = None
        mean_kl = None
        if self._equal:
            equal_decisions = float(torch.cat(self._equal).float().mean())
            mean_kl = float(torch.cat(self._divergences).mean())

        texts: set[Text] = set()
        longest = 0
        for batch in batches:
            texts.update(batch.texts)
            longest = max(longest, int(batch.valid.sum(1).max()))
        return Differences(
            texts=len(texts),
            batches=len(batches),
            tokens=longest,
            largest={name: float(torch.stack(values).max()) for name, values in self._largest.items()},
            scale={name: float(torch.stack(values).max()) for name, values in self._scales.items()},
            cosine=cosine,
            equal_decisions=equal_decisions,
            mean_kl=mean_kl,
        )


def _kl(source: Tensor, export: Tensor) -> Tensor:
    """KL divergence of the softmaxes of the last axis, in float64; one number a row."""
    log_p = F.log_softmax(source.double(), dim=-1)
    log_q = F.log_softmax(export.double(), dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).flatten()
