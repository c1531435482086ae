"""Sentence vectors of models, made as a model's folder describes: by its pooling, modules and prompts.

A *router* is a folder of sentence-transformers with two models, one that reads queries and one that reads documents.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.devices import choose_device
from limbeck.core.kinds import kind_of
from limbeck.core.progress import Report, no_progress, part_of
from limbeck.errors import ModelError
from limbeck.evaluation.plan.planned_model import fingerprint_of, readers_of
from limbeck.models import families, heads, inference, loading
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import check_pooling_named, sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.models.tokenizers import load_tokenizer

FOLLOWED_SIMILARITIES = (None, "cosine", "dot")
"""Similarities that are followed where a model's folder names them; None stands for a folder that names none."""
_LANGUAGE_MODELS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Ends of the names of classes with the head of a pretraining, beside those that `heads.HEADS` knows."""
_MOST_COMPARED = 1000
"""Queries, and documents, of which all pairs are compared."""


def vectors_of(name: str, pooling: str | None) -> SentencePooling:
    """Return how a model makes sentence vectors: as its folder says, else the mean of its tokens.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        pooling: Pooling that replaces the folder's, as the user set it; None follows the folder.

    Raises:
        ModelError: for a model that was fine-tuned for something else, whose folder says nothing of vectors; for
            modules that limbeck cannot apply, or that do not fit the model.
    """
    config = loading.load_config(name)
    if pooling is not None:
        return SentencePooling(pooling, normalize=False, max_length=None)
    described = sentence_pooling(name)
    if described is not None:
        hidden = families.shape_of(config).hidden
        # Its modules take vectors of this width, and it cuts no components off the result.
        described.check_fits(name, hidden)
        described.check_whole(name, hidden)
        return described

    # A folder that was copied in part may hold a pooling that nothing names. It is refused.
    check_pooling_named(name)
    head = _head_of_task(config)
    if head is not None:
        raise ModelError(
            f"'{name}' is not an embedding model: it has a head ({head}), and its folder does not say how to "
            "make sentence vectors. Give an embedding model, or use the mean of its last hidden states by "
            "--set pooling=mean."
        )
    return SentencePooling("mean", normalize=False, max_length=None)


def _head_of_task(config: PreTrainedConfig) -> str | None:
    """Return the class of a head that a model was fine-tuned with, or the end of its name; None without such a head.

    A language model's head is that of its pretraining, and tells nothing of what the model is for.
    """
    class_end = kind_of(heads.head_of(config)).head
    if class_end is not None:
        return f"…{class_end}"
    # The head may be one that limbeck does not read, such as `BertForMultipleChoice`.
    class_name = heads.unknown_head(config)
    if class_name is None or class_name.endswith(_LANGUAGE_MODELS):
        return None
    return class_name


def longest_text(name: str, reader: SentencePooling, most: int) -> int:
    """Return the most tokens of a text that a model reads: as its folder says, and no more than it has positions for.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        reader: How the model makes sentence vectors.
        most: Most tokens by the settings of the task.
    """
    limits = [most]
    if reader.max_length is not None:
        limits.append(reader.max_length)
    positions = families.shape_of(loading.load_config(name)).positions
    if positions is not None:
        limits.append(positions)
    return min(limits)


class TextReading(NamedTuple):
    """How two lists of texts are read.

    Attributes:
        roles: Role of each list, which decides the prompt before its texts; None for the default prompt.
        length: Most tokens of a text.
        pooling: Pooling that replaces the folder's; None follows the folder.
        normalize: Whether vectors get the length one.
    """

    roles: tuple[str, str] | None
    length: int
    pooling: str | None
    normalize: bool


class VectorPairs(NamedTuple):
    """Vectors of two lists of texts: of pairs, or of queries and documents.

    Attributes:
        first: Vectors of the first texts, `[texts, width]`.
        second: Vectors of the second texts, `[texts, width]`.
    """

    first: Tensor
    second: Tensor

    def cut(self, width: int | None, *, normalize: bool) -> "VectorPairs":
        """Return the vectors cut to their first components.

        Args:
            width: Components; None for all.
            normalize: Scale them to length one again.
        """
        if normalize:
            return VectorPairs(inference.cut_vectors(self.first, width), inference.cut_vectors(self.second, width))
        return VectorPairs(self.first[:, :width], self.second[:, :width])

    def cosines(self) -> Tensor:
        """Return the cosine of each pair of vectors of length one, `[pairs]`."""
        return (self.first * self.second).sum(-1)

    def all_cosines(self) -> Tensor:
        """Return the cosines of all first vectors with all second ones, flat; long lists are thinned evenly."""
        return (_thinned(self.first) @ _thinned(self.second).T).flatten()


def _thinned(vectors: Tensor) -> Tensor:
    """Return every n-th vector, so that there are not too many."""
    step = math.ceil(len(vectors) / _MOST_COMPARED)
    return vectors[::step]


def read_texts(
    name: str,
    first: Sequence[str],
    second: Sequence[str],
    reading: TextReading,
    *,
    keep_for: str | None = None,
    report: Report = no_progress,
) -> VectorPairs:
    """Return a model's vectors of two lists of texts. The model stays loaded until `forget_models`.

    Args:
        name: A folder, `package:NAME` or a Hub name; of a router's folder each of its models reads one list.
        first: Queries, or the first texts of pairs.
        second: Documents, or the second texts.
        reading: How they are read.
        keep_for: The task for which the vectors are kept in memory, so that the same call returns them again. They are
            dropped as soon as another task keeps vectors or asks for its own. None keeps nothing.
        report: Receives the share of the text that is read.

    Raises:
        ModelError: for vectors that are not finite numbers.
    """
    content = _content_of(name, reading)
    if keep_for is None:
        return _read_texts(name, content, first, second, reading, report)
    kept_vectors = _kept_vectors(keep_for)
    call = (name, content, tuple(first), tuple(second), reading)
    if call not in kept_vectors:
        kept_vectors[call] = _read_texts(name, content, first, second, reading, report)
    return kept_vectors[call]


def are_kept(name: str, first: Sequence[str], second: Sequence[str], reading: TextReading, keep_for: str) -> bool:
    """Return whether `read_texts` with the same arguments has kept the vectors, so that it reads nothing."""
    key = (name, _content_of(name, reading), tuple(first), tuple(second), reading)
    return key in _kept_vectors(keep_for)


def _content_of(name: str, reading: TextReading) -> str:
    """Return the fingerprint and the lengths of a folder.

    A folder may get other weights, and another length, between two calls of one process.
    """
    lengths = [str(vectors_of(place, reading.pooling).max_length) for place in readers_of(name)]
    return " ".join([fingerprint_of(name), *lengths])


@lru_cache(maxsize=1)  # A call for another task drops the vectors of the one before.
def _kept_vectors(task: str) -> dict[Any, VectorPairs]:
    """Return the vectors that are kept for a task, by the arguments of `read_texts`; at first there are none."""
    return {}


def _read_texts(
    name: str, content: str, first: Sequence[str], second: Sequence[str], reading: TextReading, report: Report
) -> VectorPairs:
    """Read texts; the arguments are those of `read_texts`, with the fingerprint and the lengths of the folder."""
    queries, documents = readers_of(name)
    if queries == documents:
        return _read_by_one_model(name, content, first, second, reading, report)
    share_of_first = len(first) / max(len(first) + len(second), 1)
    report_first = part_of(report, 0.0, share_of_first)
    report_second = part_of(report, share_of_first, 1.0)
    return VectorPairs(
        first=_read_by_one_model(queries, content, first, (), reading, report_first).first,
        second=_read_by_one_model(documents, content, (), second, reading, report_second).second,
    )


def _read_by_one_model(
    name: str, content: str, first: Sequence[str], second: Sequence[str], reading: TextReading, report: Report
) -> VectorPairs:
    """Read both lists of texts by a model that is no router."""
    reader = _load_once(name, content, reading.pooling, reading.length)
    first_vectors, second_vectors = inference.encode_both(
        reader.model,
        reader.tokenizer,
        first,
        second,
        reading.roles,
        pooling=SentenceHead(reader.pooling),
        max_length=reader.length,
        normalize=reading.normalize,
        report=report,
    )
    check_finite(name, first_vectors, second_vectors)
    return VectorPairs(first_vectors, second_vectors)


class LoadedReader(NamedTuple):
    """A model that reads texts, with its weights loaded.

    Attributes:
        model: The model, on the device that is used.
        tokenizer: Its tokenizer.
        pooling: How it makes sentence vectors.
        length: Most tokens of a text that it reads.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: SentencePooling
    length: int


def load_reader(name: str, *, pooling: str | None, length: int) -> LoadedReader:
    """Load a model that reads texts.

    Args:
        name: A folder, `package:NAME` or a Hub name; no router.
        pooling: Pooling that replaces the folder's; None follows the folder.
        length: Most tokens of a text by the settings of the task.

    Raises:
        ModelError: for a model that cannot be loaded, or makes no sentence vectors.
    """
    sentence = vectors_of(name, pooling)
    tokenizer = load_tokenizer(name)
    if sentence.max_length:
        length = min(length, sentence.max_length)
        # As in sentence-transformers, the length of the folder takes the place of the tokenizer's own.
        tokenizer.model_max_length = sentence.max_length
    model = loading.load_model(name).to(choose_device("auto"))
    return LoadedReader(model, tokenizer, sentence, length)


@lru_cache(maxsize=4)  # A student and its teacher, each of which may be a router of two models.
def _load_once(name: str, content: str, pooling: str | None, length: int) -> LoadedReader:
    """Load a model that reads texts, see `load_reader`, unless it is loaded.

    `content` is used by the cache alone, as a part of its key: the fingerprint and the lengths of the folder.
    """
    return load_reader(name, pooling=pooling, length=length)


def forget_models() -> None:
    """Let go of the models that `read_texts` has loaded, so that they do not stay on the device."""
    _load_once.cache_clear()


def check_finite(name: str, *vectors: Tensor) -> None:
    """Refuse vectors that are not finite numbers.

    Args:
        name: The model that made them.
        vectors: Vectors of any number of texts.

    Raises:
        ModelError: naming the model.
    """
    are_finite = all(tensor.isfinite().all() for tensor in vectors)
    if not are_finite:
        raise ModelError(
            f"'{name}' gives texts vectors that are not finite numbers: its weights are too large for their type, or "
            "damaged; copy the model again or retrain it."
        )
