"""`ModelForMteb`: a model in the form in which mteb asks for sentence vectors.

mteb calls `encode` with texts, and with their *prompt type*: whether they are queries, documents, or neither. The
vectors are those that limbeck makes everywhere: by the pooling, the modules and the prompts of the model's folder.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from limbeck.core.paths import short_model_name
from limbeck.core.progress import Count
from limbeck.errors import ModelError
from limbeck.evaluation.evaluators.evaluator import Share
from limbeck.evaluation.evaluators.sentence_vectors import (
    LoadedReader,
    check_finite,
    load_reader,
)
from limbeck.evaluation.plan.planned_model import fingerprint_of, readers_of
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.models import inference
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_heads import SentenceHead

_BATCH = 32
"""Texts of a forward pass, where mteb names no number."""


class ModelForMteb:
    """A model that mteb evaluates, or the two models of a router.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        point: How vectors are made and compared.
        texts: An estimate of the number of texts that mteb will ask for, by which progress is reported.
        report: Receives the progress.

    Attributes:
        mteb_model_meta: What mteb's records say about the model.
    """

    def __init__(self, name: str, point: SimilarityPoint, *, texts: int, report: Share) -> None:
        queries, documents = readers_of(name)
        self._queries = load_reader(queries, pooling=point.pooling, length=point.length)
        self._documents = self._queries
        if documents != queries:
            [length] = point.reader_lengths
            self._documents = load_reader(documents, pooling=point.pooling, length=length)
        self._name = name
        self._dot = point.dot
        self._texts = texts
        self._report = report
        self._texts_done = 0
        self.mteb_model_meta = _model_meta(name, dot=point.dot)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **options: Any,
    ) -> NDArray[np.float32]:
        """Return the vectors of texts, `[texts, width]`.

        Args:
            inputs: Batches whose `text` is a list of texts.
            task_metadata: What mteb says about the task.
            hf_split: The split that is scored.
            hf_subset: The subset of the data set, such as a language.
            prompt_type: Whether the texts are queries or documents; None for neither.
            options: `batch_size` is the number of texts of a forward pass; others are ignored.

        Raises:
            ModelError: for vectors that are not finite numbers, or a router where texts are neither.
        """
        texts: list[str] = []
        for batch in inputs:
            texts += batch["text"]
        reader = self._reader(prompt_type)
        role = _role_of_prompt(reader.pooling.prompts, task_metadata, prompt_type)

        def report_batch(share: float, what: str, count: Count | None = None, /) -> None:
            """Report the texts that are read, those of earlier calls with them."""
            texts_done = self._texts_done + round(share * len(texts))
            share_of_all = min(texts_done / max(self._texts, 1), 1.0)
            self._report(share_of_all, f"{texts_done:,} texts read", Count(texts_done, "texts"))

        vectors = inference.encode(
            reader.model,
            reader.tokenizer,
            texts,
            [role] * len(texts),
            pooling=SentenceHead(reader.pooling),
            max_length=reader.length,
            batch_size=options.get("batch_size", _BATCH),
            normalize=False,
            report=report_batch,
        )
        check_finite(self._name, vectors)
        self._texts_done += len(texts)
        return vectors.numpy()

    def similarity(self, first: Any, second: Any) -> torch.Tensor:
        """Return the similarity of each of the first vectors with each of the second ones, `[first, second]`."""
        return self._comparable(first) @ self._comparable(second).T

    def similarity_pairwise(self, first: Any, second: Any) -> torch.Tensor:
        """Return the similarity of each pair of vectors, `[pairs]`."""
        return (self._comparable(first) * self._comparable(second)).sum(-1)

    def _comparable(self, vectors: Any) -> torch.Tensor:
        """Return vectors whose inner products are the similarities that the model's folder says."""
        tensor = torch.as_tensor(vectors)
        return tensor if self._dot else F.normalize(tensor, dim=-1)

    def _reader(self, prompt_type: Any) -> LoadedReader:
        """Return the model that reads texts of a prompt type.

        Raises:
            ModelError: for a router, if the texts are neither queries nor documents.
        """
        if self._queries is self._documents or _role(prompt_type) == "query":
            return self._queries
        if prompt_type is None:
            raise ModelError(
                f"'{self._name}' sends queries and documents to different models, but mteb also embeds texts that "
                "are neither queries nor documents; give one of the two models."
            )
        return self._documents


def _model_meta(name: str, *, dot: bool) -> Any:
    """Return mteb's metadata of a model, by which it names the folder of its results.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        dot: Whether its vectors are compared by their inner products.
    """
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    # Names of mteb have the form of those on the Hub: `owner/name`.
    name_in_mteb = name
    queries, _ = readers_of(name)
    if is_local(resolve_model(queries)):
        name_in_mteb = f"local/{short_model_name(name)}"
    similarity = ScoringFunction.DOT_PRODUCT if dot else ScoringFunction.COSINE
    return ModelMeta.create_empty(
        {"name": name_in_mteb, "revision": fingerprint_of(name), "similarity_fn_name": similarity}
    )


def _role(prompt_type: Any) -> str | None:
    """Return limbeck's role of texts of a prompt type: `query`, `document`, or None for neither."""
    return None if prompt_type is None else str(prompt_type.value)


def _role_of_prompt(prompts: Mapping[str, str], task_metadata: Any, prompt_type: Any) -> str | None:
    """Return the role whose prompt is put before texts.

    As in mteb, the prompts of a folder may be named after a task or a type of task, such as `Clustering`. Such a name
    takes precedence over that of a role.
    """
    from mteb.models.abs_encoder import get_prompt_name

    return get_prompt_name(dict(prompts), task_metadata, prompt_type) or _role(prompt_type)
