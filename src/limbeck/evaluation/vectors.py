"""Models scored by their sentence vectors as they are: cosines of pairs, and queries that look for their documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.core.devices import choose_device
from limbeck.core.hashing import fingerprint
from limbeck.core.kinds import KINDS, kind_of
from limbeck.errors import CorpusError, ModelError
from limbeck.evaluation.cell import SimilarityPoint
from limbeck.evaluation.encoding import PreparedCell
from limbeck.evaluation.metrics import RETRIEVAL_METRICS, score, score_places
from limbeck.evaluation.retrieval import ROLES
from limbeck.evaluation.similarities import spearman_agreement
from limbeck.evaluation.tasks import TaskRow
from limbeck.models import families, heads, inference, loading, tokenizers
from limbeck.models.fingerprint import model_fingerprint
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import check_pooling_named, routes_of, sentence_pooling
from limbeck.models.sentences import SentencePooling

_SCORES_AT_ONCE = 2**24
"""Cosines of queries and documents in memory."""
AGREEMENT = "agreement"
"""Name of the correlation with the teacher's cosines among the figures of a model."""
_MOST_AGREED = 1000
"""Queries, and documents, whose cosines agree or not."""


def readers_of(name: str) -> tuple[str, str]:
    """Return the models that read queries and documents: of a router's folder its two, else twice the model itself.

    Raises:
        ModelError: for a router whose models are no whole folders.
    """
    return routes_of(name) or (name, name)


def vectors_of(name: str, pooling: str | None) -> SentencePooling:
    """Return how a model makes sentence vectors: as its folder says, else the mean of its tokens.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        pooling: In place of what the folder says; None leaves it to that.

    Raises:
        ModelError: for a model that was fine-tuned for something else, whose folder says nothing of vectors; for
            modules that limbeck cannot apply, or that do not fit the model.
    """
    found = sentence_pooling(name) if pooling is None else None
    config = loading.load_config(name)
    if found is None:
        if pooling is None:
            check_pooling_named(name)
        head = kind_of(heads.head_of(config)).head
        if pooling is None and head is not None:
            raise ModelError(
                f"'{name}' is not an embedding model: it has a head (…{head}), and its folder does not say how to "
                "make sentence vectors. Give an embedding model, or use the mean of its last hidden states by "
                "--set pooling=mean."
            )
        return SentencePooling(pooling or "mean", normalize=False, max_length=None)
    hidden = families.shape_of(config).hidden
    found.check_fits(name, hidden)
    found.check_whole(name, hidden)
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
        roles = None if search is None else ROLES
        how = _Reading(roles, point.length, point.pooling, not point.dot)
        own = _read(name, fingerprint_of(name), *texts, how)
        theirs = own
        if point.teacher not in (None, name):
            theirs = _read(point.teacher, fingerprint_of(point.teacher), *texts, how)
        for variant in point.variants:
            both = own[0], theirs[1] if variant.asymmetric else own[1]
            if point.dot:
                first, second = (vectors[:, : variant.width] for vectors in both)
            else:
                first, second = (inference.cut_vectors(vectors, variant.width) for vectors in both)
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
        raise CorpusError(f"{where} has rows of a single text; similarity needs pairs.")
    return tuple(row.text for row in rows), tuple(row.pair or "" for row in rows)


def fingerprint_of(name: str) -> str:
    """Return the fingerprint of a model; of a router's folder that of both of its models."""
    both = dict.fromkeys(readers_of(name))
    return model_fingerprint(name) if len(both) == 1 else fingerprint([model_fingerprint(each) for each in both])


class _Reading(NamedTuple):
    """How texts are read: roles of both lists, most tokens, pooling in place of the folder's, vectors of length one."""

    roles: tuple[str, str] | None
    length: int
    pooling: str | None
    normalize: bool


@lru_cache(maxsize=2)  # A model's own, and the teacher's, with which those of all models are compared.
def _read(
    name: str, known_by: str, first: tuple[str, ...], second: tuple[str, ...], how: _Reading
) -> tuple[Tensor, Tensor]:
    """Return a model's vectors of two lists of texts, see `encode_both`; a router's by its two models."""
    queries, documents = readers_of(name)
    if queries == documents:
        return _read_by(name, first, second, how)
    return _read_by(queries, first, (), how)[0], _read_by(documents, (), second, how)[1]


def _read_by(name: str, first: Sequence[str], second: Sequence[str], how: _Reading) -> tuple[Tensor, Tensor]:
    sentence = vectors_of(name, how.pooling)
    model, head = loading.load_model(name).to(choose_device("auto")), SentenceHead(sentence)
    found = inference.encode_both(
        model, tokenizers.load_tokenizer(name), first, second, how.roles,
        pooling=head, max_length=min(how.length, sentence.max_length or how.length), normalize=how.normalize,
    )  # fmt: skip
    if not all(vectors.isfinite().all() for vectors in found):
        raise ModelError(
            f"'{name}' gives texts vectors that are not finite numbers: its weights are too large for their type, or "
            "damaged; copy the model again or retrain it."
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
    return spearman_agreement(*(found.numpy() for found in cosines))


@dataclass(frozen=True)
class Search:
    """Queries that look for their documents among all of a split.

    Attributes:
        queries: Their texts, one for each id; each once where they have none.
        documents: Texts of the documents, likewise.
        relevant: Of each query the relevance of its documents by their number, all above 0.
        own: By the number of a query that of the document that it is itself, which is not among what it finds.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: tuple[Mapping[int, float], ...]
    own: Mapping[int, int]

    @classmethod
    def of(cls, rows: Sequence[TaskRow], where: str) -> "Search":
        """Gather the rows of a split.

        Args:
            rows: Of a retrieval, see `TaskRow`.
            where: Names the split, for the message.

        Raises:
            CorpusError: if there is nothing to look for, or nothing to look through.
        """
        documents: dict[str, int] = {}
        queries: dict[str, dict[int, float]] = {}
        of_queries, of_documents, own = [], [], {}
        for row in rows:
            query, document = row.keys
            if document not in documents:
                of_documents.append(row.pair or "")
            number = documents.setdefault(document, len(documents))
            if row.text:
                if query not in queries:
                    of_queries.append(row.text)
                found = queries.setdefault(query, {})
                if isinstance(row.label, int | float) and row.label > 0:
                    found[number] = max(float(row.label), found.get(number, 0.0))
        if not any(queries.values()) or len(documents) < 2:
            raise CorpusError(
                f"{where} has {len(queries)} queries and {len(documents)} documents; give at least one query with "
                "a relevant document, and at least two documents."
            )
        if rows[0].ids is not None:
            for place, (query, found) in enumerate(queries.items()):
                number = documents.get(query, -1)
                if number >= 0 and number not in found and of_documents[number].endswith(of_queries[place]):
                    own[place] = number
        return cls(tuple(of_queries), tuple(of_documents), tuple(queries.values()), own)

    def score(self, queries: Tensor, documents: Tensor) -> dict[str, float]:
        """Return the means over queries of the figures of `score_places`, by inner products.

        Args:
            queries: Their vectors, of length one for cosines, `[queries, width]`.
            documents: Those of the documents, `[documents, width]`.
        """
        figures = np.zeros((len(self.queries), len(RETRIEVAL_METRICS)))
        for part in torch.arange(len(queries)).split(max(1, _SCORES_AT_ONCE // len(documents))):
            cosines: NDArray[np.float32] = (queries[part] @ documents.T).numpy()
            for number, row in zip(part.tolist(), cosines, strict=True):
                if number in self.own:
                    row[self.own[number]] = -np.inf
                if wanted := self.relevant[number]:
                    theirs, gains = row[[*wanted], None], np.array([*wanted.values()])
                    figures[number] = score_places((row > theirs).sum(1), (row == theirs).sum(1), gains)
        return dict(zip(RETRIEVAL_METRICS, figures.mean(0).tolist(), strict=True))
