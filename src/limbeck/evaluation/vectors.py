"""Models scored by their sentence vectors as they are: cosines of pairs, and queries that look for their documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.core.kinds import KINDS
from limbeck.core.machine import choose_device
from limbeck.errors import CorpusError, ModelError
from limbeck.evaluation import agreement, inference
from limbeck.evaluation.cell import SimilarityPoint, model_fingerprint
from limbeck.evaluation.encoding import PreparedCell
from limbeck.evaluation.metrics import RETRIEVAL_METRICS, score, score_places
from limbeck.evaluation.tasks import TaskRow
from limbeck.models import families, loading
from limbeck.models.sentences import SentenceHead, SentencePooling, sentence_pooling

_SCORES_AT_ONCE = 2**24
"""Cosines of queries and documents in memory."""
AGREEMENT = "agreement"
"""Name of the correlation with the teacher's cosines among the figures of a model."""
_MOST_AGREED = 1000
"""Queries, and documents, whose cosines agree or not."""


def vectors_of(name: str, pooling: str | None) -> SentencePooling:
    """Return how a model makes sentence vectors: as its folder says, else the mean of its tokens.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        pooling: In place of what the folder says; None leaves it to that.

    Raises:
        ModelError: for modules that limbeck cannot apply, or that do not fit the model.
    """
    found = sentence_pooling(name) if pooling is None else None
    if found is None:
        return SentencePooling(pooling or "mean", normalize=False, max_length=None)
    found.check_fits(name, families.shape_of(loading.load_config(name)).hidden)
    return found


def score_vectors(cell: PreparedCell) -> dict[str, dict[str, float]]:
    """Score a model on a task of sentence vectors.

    Returns:
        Metric to value, by split and, of a variant, by split and variant; see `SimilarityPoint.variants`. Of a model
        with a teacher also `agreement`: Spearman's correlation of its cosines with those of the teacher's whole
        vectors, of a retrieval over an even part of all queries and documents.

    Raises:
        CorpusError: for rows of one text, or a single document.
        ModelError: for a model without sentence vectors, or with vectors that are not finite.
    """
    name, point, task = cell.cell.model, cell.cell.point, cell.task.task
    assert isinstance(point, SimilarityPoint)
    scores: dict[str, dict[str, float]] = {}
    for split in task.scored:
        rows = cell.task.rows[split]
        search = Search.of(rows, f"{task.title} {split}") if KINDS[task.kind].has_queries else None
        texts = _pairs_of(rows, f"{task.title} {split}") if search is None else (search.queries, search.documents)
        roles = None if search is None else agreement.ROLES
        own = _read(name, model_fingerprint(name), *texts, roles, point.length, point.pooling)
        theirs = own
        if point.teacher not in (None, name):
            fingerprint = model_fingerprint(point.teacher)
            theirs = _read(point.teacher, fingerprint, *texts, roles, point.length, point.pooling)
        for variant in point.variants:
            first, second = own[0], theirs[1] if variant.asymmetric else own[1]
            first, second = (inference.cut_vectors(vectors, variant.width) for vectors in (first, second))
            if search is None:
                found = score(task, split, rows, _cosines(first, second).tolist())
            else:
                figures = search.score(first, second)
                found = {metric: figures[metric] for metric in task.metrics}
            if theirs is not own and not variant.asymmetric:
                found[AGREEMENT] = _agree((first, second), theirs, all_pairs=search is not None)
            scores[f"{split}{variant}"] = found
    return scores


def _pairs_of(rows: Sequence[TaskRow], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if any(row.pair is None for row in rows):
        raise CorpusError(f"{where} has rows of one text; similarity is of pairs.")
    return tuple(row.text for row in rows), tuple(row.pair or "" for row in rows)


@lru_cache(maxsize=2)  # A model's own, and the teacher's, with which those of all models are compared.
def _read(
    name: str,
    fingerprint: str,
    first: tuple[str, ...],
    second: tuple[str, ...],
    roles: tuple[str, str] | None,
    length: int,
    pooling: str | None,
) -> tuple[Tensor, Tensor]:
    """Return a model's vectors of two lists of texts, see `encode_both`."""
    model, head = loading.load_model(name).to(choose_device("auto")), SentenceHead(vectors_of(name, pooling))
    tokenizer = loading.load_tokenizer(name)
    found = inference.encode_both(model, tokenizer, first, second, roles, pooling=head, max_length=length)
    if not all(vectors.isfinite().all() for vectors in found):
        raise ModelError(
            f"'{name}' gives texts vectors that are no finite numbers: its weights are too large for their type, or "
            "damaged; copy the model again, or train it anew."
        )
    return found


def _cosines(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(-1)


def _agree(own: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], *, all_pairs: bool) -> float:
    """Return Spearman's correlation of the cosines of two models, of pairs of rows or of all pairs."""
    if all_pairs:
        thinned = ([x[:: -(-len(x) // _MOST_AGREED)] for x in both] for both in (own, theirs))
        cosines = [(queries @ documents.T).flatten() for queries, documents in thinned]
    else:
        cosines = [_cosines(*both) for both in (own, theirs)]
    return inference.spearman_agreement(*(found.numpy() for found in cosines))


@dataclass(frozen=True)
class Search:
    """Queries that look for their documents among all of a split.

    Attributes:
        queries: Their texts, each once.
        documents: Texts of the documents, each once.
        relevant: Of each query the relevance of its documents by their number, all above 0.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: tuple[Mapping[int, float], ...]

    @classmethod
    def of(cls, rows: Sequence[TaskRow], where: str) -> "Search":
        """Gather the rows of a split.

        Args:
            rows: Of a retrieval, see `TaskRow`.
            where: Names the split, for the message.

        Raises:
            CorpusError: if there is nothing to look for, or nothing to look through.
        """
        numbers: dict[str, int] = {}
        relevant: dict[str, dict[int, float]] = {}
        for row in rows:
            number = numbers.setdefault(row.pair or "", len(numbers))
            if row.text:
                found = relevant.setdefault(row.text, {})
                if isinstance(row.label, int | float) and row.label > 0:
                    found[number] = max(float(row.label), found.get(number, 0.0))
        if not any(relevant.values()) or len(numbers) < 2:
            raise CorpusError(
                f"{where} has {len(relevant)} queries and {len(numbers)} documents; give a query with a relevant "
                "document, and two documents or more."
            )
        return cls(tuple(relevant), tuple(numbers), tuple(relevant.values()))

    def score(self, queries: Tensor, documents: Tensor) -> dict[str, float]:
        """Return the means over queries of nDCG, reciprocal rank and recall at 10, by the cosine.

        Args:
            queries: Their vectors of length one, `[queries, width]`.
            documents: Those of the documents, `[documents, width]`.
        """
        figures = np.zeros((len(self.queries), len(RETRIEVAL_METRICS)))
        for part in torch.arange(len(queries)).split(max(1, _SCORES_AT_ONCE // len(documents))):
            cosines: NDArray[np.float32] = (queries[part] @ documents.T).numpy()
            for number, row in zip(part.tolist(), cosines, strict=True):
                if wanted := self.relevant[number]:
                    own, gains = row[[*wanted], None], np.array([*wanted.values()])
                    figures[number] = score_places((row > own).sum(1), (row == own).sum(1), gains)
        return dict(zip(RETRIEVAL_METRICS, figures.mean(0).tolist(), strict=True))
