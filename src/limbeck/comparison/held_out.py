"""Measures of students beside their teacher on held-out text, without labels and alike for all methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core import records
from limbeck.core.paths import STUDENT
from limbeck.core.studies import HeldOutFigures, HeldOutMeasure
from limbeck.corpus import Corpus, LabelledCorpus, PadCollator
from limbeck.corpus.reading import PROMPT, TEACHER_IDS
from limbeck.errors import CorpusError, LimbeckError
from limbeck.evaluation import (
    SentencePair,
    build_pairs,
    measure_retrieval,
    pair_similarities,
    retrieval,
    spearman_agreement,
)
from limbeck.evaluation.measures import HeldOutSpec
from limbeck.methods import layer_mapping, minilmv2
from limbeck.models.families import Shape, depth, shape_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_heads import SentenceHead, describe_pooling
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.streams import StreamKey, Streams
from limbeck.models.taps import StreamTap
from limbeck.objectives import relation_kl

_PARTS = ("query", "key", "value")
_PENALTIES = tuple(10.0**power for power in range(-4, 3))
"""Of the ridge regression, in units of the mean variance of the student's features."""


def common_relation_heads(teacher: Shape, students: Sequence[Shape]) -> int:
    """Return the relation heads of all students: MiniLMv2's number, or the nearest below that divides every width."""
    widths = {layer_mapping.stream_width(shape, part) for shape in (teacher, *students) for part in _PARTS}
    return minilmv2.relation_heads_for(teacher, widths)


class LastLayers:
    """Compares layers of students with their teacher's, the last or mapped ones, on text that none of them trains on.

    Args:
        teacher: Whole, in eval mode, where students are compared.
        batches: `input_ids`, `attention_mask` and what else the models take, `[B, L]`.
        students: The shapes of all students, which are compared by the same relation heads.
        kept: Read the teacher's relations once and keep them, on the CPU; its hidden states are not compared then.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        batches: Sequence[Mapping[str, Tensor]],
        students: Sequence[Shape],
        *,
        kept: bool = False,
    ) -> None:
        self._batches, self.device = batches, teacher.device
        self._heads = common_relation_heads(shape_of(teacher.config), students)
        self._causal = shape_of(teacher.config).causal
        self._kinds = _PARTS if kept else (*_PARTS, "hidden")
        self._teacher = None if kept else teacher
        self._kept = (
            [{kind: x.cpu() for kind, x in streams.items()} for streams in self._read_last(teacher)] if kept else []
        )
        self._width = shape_of(teacher.config).hidden

    def compare(self, student: PreTrainedModel) -> tuple[float, float | None]:
        """Compare a student in eval mode, on the teacher's device.

        Returns:
            The mean divergence of the student's query-query, key-key and value-value relations from the teacher's, in
            nats (0 at equality; MiniLMv2 section 3.1). And the share of the variance of the teacher's last hidden
            states that a linear map of the student's explains (1: all of it), by a ridge regression on the first two
            thirds of the batches, measured on the last; None of fewer than three. Its penalty does best on the second
            third when fitted on the first: a few thousand tokens are little for as many features.
        """
        return self._compare(self._read_last(student))

    def hidden_states_loss(self, student: PreTrainedModel, mapping: Mapping[int, Sequence[int]]) -> float:
        """Return L_HS = sum over i and j in phi(i) of MSE(H_i^S W_i^j, H_j^T), means being over tokens and widths.

        The maps W have no offset, as printed. They are not those of a training, since a method may learn none: each
        is the ridge regression of `compare`, on the first two thirds of the batches, and the loss is of the last. The
        sum has a term for each pair of layers, so a deeper student has more of them.

        Args:
            student: In eval mode, on the teacher's device.
            mapping: phi, the teacher's layers by student layer, both counted from 1.

        Source:
            Comparative study (arXiv 2310.08797) section 3, equation 6. The nearest figure without a unit is the share
            of the variance that `compare` returns.
        """
        assert self._teacher is not None  # kept streams are of the last layer
        keys = {i: StreamKey("hidden", i) for i in mapping}
        targets = {j: StreamKey("hidden", j) for layers in mapping.values() for j in layers}
        thirds = {i: (_Moments(), _Moments(), _Moments()) for i in mapping}
        streams = zip(self._read(student, keys.values()), self._read(self._teacher, targets.values()), strict=True)
        for number, (batch, (own, other)) in enumerate(zip(self._batches, streams, strict=True)):
            valid = batch["attention_mask"].bool().to(self.device)
            for i, layers in mapping.items():
                # Side by side: the maps of one student layer are the columns of one regression.
                taught = torch.cat([other[targets[j]][valid] for j in layers], dim=-1)
                thirds[i][3 * number // len(self._batches)].add(own[keys[i]][valid], taught)
        return sum(_errors(*moments, offset=False) for moments in thirds.values()) / self._width

    @cached_property
    def uniform(self) -> float:
        """The divergence of relations that look at all tokens alike, as those of zeros do; where they are kept."""
        return self._compare({kind: torch.zeros_like(x) for kind, x in streams.items()} for streams in self._kept)[0]

    def _read(self, model: PreTrainedModel, keys: Iterable[StreamKey]) -> Iterator[Streams]:
        """Read streams of a model, batch by batch."""
        with StreamTap(model, keys) as tap:
            for batch in self._batches:
                with torch.no_grad():
                    streams = tap(**{name: tensor.to(self.device) for name, tensor in batch.items()})
                yield streams

    def _read_last(self, model: PreTrainedModel) -> Iterator[dict[str, Tensor]]:
        """Read the streams of a model's last layer by kind, batch by batch."""
        keys = [StreamKey(kind, depth(model.config)) for kind in self._kinds]
        for streams in self._read(model, keys):
            yield {key.kind: x for key, x in streams.items()}

    def _compare(self, student: Iterable[Mapping[str, Tensor]]) -> tuple[float, float | None]:
        teacher = self._kept if self._teacher is None else self._read_last(self._teacher)
        total = count = 0.0
        thirds = _Moments(), _Moments(), _Moments()
        for number, (batch, own, other) in enumerate(zip(self._batches, student, teacher, strict=True)):
            valid = batch["attention_mask"].bool().to(self.device)
            for part in _PARTS:
                ours, theirs = own[part].to(self.device), other[part].to(self.device)
                term = relation_kl(ours, ours, theirs, theirs, heads=self._heads, valid=valid, causal=self._causal)
                total, count = total + float(term.total), count + float(term.count)
            if "hidden" in other:
                thirds[3 * number // len(self._batches)].add(own["hidden"][valid], other["hidden"][valid])
        hidden = "hidden" in self._kinds and len(self._batches) >= 3
        return total / count, 1 - _errors(*thirds) / thirds[2].variance if hidden else None


def _errors(first: _Moments, second: _Moments, third: _Moments, *, offset: bool = True) -> float:
    """Return the squared error of a row of the third, summed over y, under a regression on the first two."""
    tried = zip(_PENALTIES, first.regressions(_PENALTIES, offset), strict=True)
    best, _ = min(tried, key=lambda one: second.error(*one[1]))
    [fitted] = (first + second).regressions([best], offset)
    return third.error(*fitted)


class _Moments:
    """Sums over rows x `[n, X]` and y `[n, Y]`, in float64: all that a linear regression needs of them."""

    def __init__(self) -> None:
        self._rows = 0
        self._sums: tuple[Tensor, ...] = ()

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add rows."""
        x, y = x.double().cpu(), y.double().cpu()
        new = x.sum(0), y.sum(0), x.T @ x, x.T @ y, y.square().sum()
        self._rows += len(x)
        self._sums = tuple(a + b for a, b in zip(self._sums, new, strict=True)) if self._sums else new

    def __add__(self, other: _Moments) -> _Moments:
        joined = _Moments()
        joined._rows = self._rows + other._rows
        joined._sums = tuple(a + b for a, b in zip(self._sums, other._sums, strict=True))
        return joined

    def regressions(self, penalties: Sequence[float], offset: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Return weight `[X, Y]` and offset `[Y]` of the ridge regression of y on x for each penalty.

        Args:
            penalties: In units of the mean diagonal of the covariance.
            offset: Whether there is one; otherwise it is 0, and x and y are not centred.
        """
        sum_x, sum_y, xx, xy, _ = self._sums
        mean_x, mean_y = (sum_x / self._rows, sum_y / self._rows) if offset else (0 * sum_x, 0 * sum_y)
        covariance = xx - self._rows * torch.outer(mean_x, mean_x)
        values, vectors = torch.linalg.eigh(covariance)
        projected = vectors.T @ (xy - self._rows * torch.outer(mean_x, mean_y))
        for penalty in penalties:
            raised = values + covariance.diagonal().mean() * penalty
            # A pseudo-inverse, since vectors that are all alike have no covariance.
            kept = raised > len(raised) * torch.finfo(raised.dtype).eps * raised.max()
            weight = vectors @ (torch.where(kept, 1 / raised, 0.0)[:, None] * projected)
            yield weight, mean_y - mean_x @ weight

    def error(self, weight: Tensor, offset: Tensor) -> float:
        """Return |x W + b - y|^2, the mean over rows."""
        sum_x, sum_y, xx, xy, yy = self._sums
        # Written out, so that the rows need not be kept.
        error = ((xx @ weight) * weight).sum() + self._rows * offset @ offset + yy
        error += 2 * (sum_x @ weight) @ offset - 2 * (xy * weight).sum() - 2 * sum_y @ offset
        return float(error / self._rows)

    @property
    def variance(self) -> float:
        """The mean of |y - mean y|^2 over rows."""
        _, sum_y, _, _, yy = self._sums
        return float((yy - sum_y @ sum_y / self._rows) / self._rows)


def pair_agreement(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    pairs: Sequence[SentencePair],
    pooling: str | SentenceHead,
) -> Callable[..., float]:
    """Return Spearman's correlation of students' similarities of sentence pairs with their teacher's, read once.

    The function takes a student, and what makes its vectors where that is not `pooling`.

    Args:
        teacher: Where students are compared.
        tokenizer: Of all models.
        corpus: Whose blocks are as long as the longest text.
        pairs: The sentence pairs.
        pooling: How sentence vectors are pooled.
    """
    texts, length = [(pair.first, pair.second) for pair in pairs], int(corpus.manifest["settings"]["length"])
    similarities = partial(pair_similarities, tokenizer=tokenizer, pairs=texts, max_length=length)
    of_teacher = similarities(teacher, pooling=pooling).numpy()

    return lambda student, own=None: spearman_agreement(
        similarities(student, pooling=own or pooling).numpy(), of_teacher
    )


def own_head(folder: Path, pooling: str | SentenceHead) -> str | SentenceHead:
    """Return what makes a student's sentence vectors: as its files say, else as others' do, as far as that fits it.

    Args:
        folder: The student's.
        pooling: What makes those of others.
    """
    said = sentence_pooling(folder)
    if said is not None:
        return SentenceHead(said)
    if isinstance(pooling, str) or pooling.sentence.fits(shape_of(load_config(folder)).hidden):
        return pooling
    return pooling.sentence.pooling


_BATCH = 32

MEASURES = (
    HeldOutMeasure(key="agreement", title="agreement", digits=3, best="highest"),
    HeldOutMeasure(key="retrieval", title="retrieval", digits=3, best="highest"),
    HeldOutMeasure(key="explained", title="hidden states", digits=3, best="highest"),
    HeldOutMeasure(key="relations", title="relations", digits=4, best="lowest"),
)
"""In the order of the columns; the first ranks the students where there is no task.

`agreement`: Spearman of the student's sentence similarities with the teacher's. `retrieval`: mean reciprocal rank at 10
of summaries finding their bodies. `explained` and `relations`: see `LastLayers`.
"""


def check_held_out(corpus: Corpus, spec: HeldOutSpec) -> None:
    """Refuse text of which nothing could be held out, before anything is distilled.

    Args:
        corpus: The corpus; one that was to hold nothing out is let pass, and its figures are missing with a reason.
        spec: Whether held-out text is to be measured.

    Raises:
        CorpusError: if a share was to be held out and none could be.
    """
    asked = spec.enabled and corpus.manifest["settings"]["held_out"] != 0
    if asked and not corpus.manifest["held_out_documents"]:
        raise CorpusError(
            f"Nothing can be held out: corpus.sources has too few documents ({corpus.manifest['documents']}). Blank "
            "lines separate documents in a text file; give more, or set evaluation.held_out.enabled to false."
        )


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Measures models of one comparison on its held-out text.

    Args:
        teacher: The teacher, whole, in eval mode, on the device that measures.
        tokenizer: The tokenizer of all.
        corpus: The corpus, with its held-out blocks and documents.
        spec: What to measure, and on how much.
        pooling: What makes the teacher's sentence vectors, and those of students whose files say nothing.
        students: The students' shapes.
    """

    teacher: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus
    spec: HeldOutSpec
    pooling: str | SentenceHead
    students: Sequence[Shape]

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the figures besides the model: equal settings make figures comparable."""
        return {
            **self.spec.model_dump(exclude={"enabled"}),
            "pooling": describe_pooling(self.pooling),
            "relation_heads": common_relation_heads(shape_of(self.teacher.config), self.students),
            "text": self.corpus.identity,
        }

    def measure_once(self, folder: Path, load: Callable[[], PreTrainedModel] | None = None) -> HeldOutFigures:
        """Measure a run's student, unless its folder has the figures by the same settings.

        Args:
            folder: The run's folder, with the student's below it, and room for the figures.
            load: Loads the model, a second copy if it is the teacher; by default the run's student.
        """
        found = records.load(HeldOutFigures, folder)
        earlier = {**self.settings, "text": self.corpus.path.name}  # Of versions that knew text by its cache.
        if found.is_empty or found.settings not in (self.settings, earlier):
            student = folder / STUDENT
            given = (load(),) if load is not None else (load_model(student), own_head(student, self.pooling))
            found = self.measure(*given)
            found.settings = self.settings
            records.save(found, folder)
        return found

    def measure(self, model: PreTrainedModel, own: str | SentenceHead | None = None) -> HeldOutFigures:
        """Measure a model; a figure that the held-out text is too small for is None, with the reason.

        Of labelled rows there is no retrieval: they have no summaries.

        Args:
            model: The model.
            own: What makes its sentence vectors, where that is not `pooling`.
        """
        model = model.to(self.teacher.device).eval()
        figures: dict[str, float | None] = {measure.key: None for measure in MEASURES}
        unavailable: dict[str, str] = {}
        for name, take in (("agreement", self._agreement), ("retrieval", self._retrieval), ("layers", self._layers)):
            if name == "retrieval" and isinstance(self.corpus, LabelledCorpus):
                continue
            try:
                figures |= take(model, own)
            except LimbeckError as error:
                unavailable[name] = str(error)
        # Vectors that are all alike have neither ranks nor variance.
        return HeldOutFigures(figures=records.plain(figures), unavailable=unavailable)

    def _agreement(self, model: PreTrainedModel, own: str | SentenceHead | None) -> dict[str, float | None]:
        return {"agreement": self._pair_agreement(model, own)}

    def _retrieval(self, model: PreTrainedModel, own: str | SentenceHead | None) -> dict[str, float | None]:
        length = int(self.corpus.manifest["settings"]["length"])
        pairs, pooling = self._retrieval_pairs, own or self.pooling
        found = measure_retrieval(model, self.tokenizer, pairs, pooling=pooling, max_length=length)
        return {"retrieval": found.mrr_at_10}

    def _layers(self, model: PreTrainedModel, own: str | SentenceHead | None) -> dict[str, float | None]:
        relations, explained = LastLayers(self.teacher, self._batches, self.students).compare(model)
        return {"relations": relations, "explained": explained}

    @cached_property
    def _documents(self) -> list[tuple[str, str] | str]:
        found = self.corpus.held_out_documents()
        return [(document.title, document.body) if document.title else document.text for document in found]

    @cached_property
    def _pair_agreement(self) -> Callable[..., float]:
        plain = [text if isinstance(text, str) else "\n".join(text) for text in self._documents]
        pairs = build_pairs(plain, self.spec.pairs)
        return pair_agreement(self.teacher, self.tokenizer, self.corpus, pairs, self.pooling)

    @cached_property
    def _retrieval_pairs(self) -> list[tuple[str, str]]:
        return retrieval.build_retrieval_pairs(self._documents, self.spec.retrieval_pairs)

    @cached_property
    def _batches(self) -> list[dict[str, Tensor]]:
        if not len(self.corpus.held_out):
            raise CorpusError("No text is held out; give corpus.held_out a share above 0.")
        return held_out_batches(self.corpus, self.tokenizer, self.spec.blocks)


def held_out_batches(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, blocks: int, fewest: int = 3
) -> list[dict[str, Tensor]]:
    """Return the first held-out blocks in batches, in the order of the sources.

    Args:
        corpus: With held-out text.
        tokenizer: Of all models.
        blocks: At most so many.
        fewest: At least so many batches, where there are as many blocks.

    Returns:
        `input_ids` and `attention_mask`, `[B, L]`, of each batch.
    """
    rows = [
        {name: value for name, value in row.items() if name not in (PROMPT, TEACHER_IDS)}
        for row in islice(corpus.held_out, blocks)
    ]
    collate = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side)
    size = min(_BATCH, max(1, len(rows) // fewest))
    return [collate(rows[start : start + size]) for start in range(0, len(rows), size)]
