"""What students have of their teacher on held-out text, without labels and alike for all methods."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.last_layers import common_relation_heads, compare_last_layers
from limbeck.comparison.measures import HeldOutSpec
from limbeck.core.files import write_atomically
from limbeck.corpus import Corpus, PadCollator
from limbeck.errors import CorpusError, LimbeckError
from limbeck.evaluation import build_pairs, measure_retrieval, pair_similarities, spearman_agreement
from limbeck.evaluation.agreement import build_retrieval_pairs
from limbeck.models.families import Shape, shape_of
from limbeck.models.loading import load_model

HELD_OUT = "held_out.json"
_BATCH = 32


@dataclass(frozen=True)
class Measure:
    """A figure of the held-out text.

    Attributes:
        key: Its name in records.
        title: Its heading.
        digits: Decimals that tables show.
        best: Whether more or less is better.
    """

    key: str
    title: str
    digits: int
    best: str


MEASURES = (
    Measure("agreement", "agreement", 3, "highest"),
    Measure("retrieval", "retrieval", 3, "highest"),
    Measure("explained", "hidden states", 3, "highest"),
    Measure("relations", "relations", 4, "lowest"),
)
"""In the order of the columns; the first ranks the students where there is no task.

`agreement`: Spearman of the student's sentence similarities with the teacher's. `retrieval`: mean reciprocal rank at 10
of summaries finding their bodies. `explained` and `relations`: see `compare_last_layers`.
"""


def check_held_out(corpus: Corpus, spec: HeldOutSpec) -> None:
    """Refuse text of which nothing could be held out, before anything is distilled.

    Args:
        corpus: The corpus; one that was to hold nothing out is let pass, and its figures are missing with a reason.
        spec: Whether held-out text is to be measured.

    Raises:
        CorpusError: if a share was to be held out and none could be.
    """
    asked = spec.enabled and corpus.manifest["settings"]["held_out"] > 0
    if asked and not corpus.manifest["held_out_documents"]:
        raise CorpusError(
            f"Nothing can be held out: corpus.sources has {corpus.manifest['documents']} document. Blank lines "
            "separate documents in a text file; give more, or set evaluation.held_out.enabled to false."
        )


class HeldOutText:
    """Measures models of one comparison on its held-out text.

    Args:
        teacher: The teacher, whole, in eval mode, on the device that measures.
        tokenizer: The tokenizer of all.
        corpus: The corpus, with its held-out blocks and documents.
        spec: What to measure, and on how much.
        pooling: How sentence vectors are pooled.
        students: The students' shapes.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        spec: HeldOutSpec,
        *,
        pooling: str,
        students: Sequence[Shape],
    ) -> None:
        self._teacher = teacher
        self._tokenizer = tokenizer
        self._corpus = corpus
        self._spec = spec
        self._encoding: dict[str, Any] = {
            "pooling": pooling,
            "max_length": int(corpus.manifest["settings"]["length"]),
            "batch_size": _BATCH,
        }
        self._heads = common_relation_heads(shape_of(teacher.config), students)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the figures besides the model: equal settings make figures comparable."""
        return {
            **self._spec.model_dump(exclude={"enabled"}),
            "pooling": self._encoding["pooling"],
            "relation_heads": self._heads,
            "text": self._corpus.path.name,
        }

    def measure_once(self, folder: Path, load: Callable[[], PreTrainedModel] | None = None) -> dict[str, Any]:
        """Measure a run's student, unless its folder has the figures by the same settings.

        Args:
            folder: The run's folder, with the student's below it, and room for the figures.
            load: Loads the model, a copy of its own if it is the teacher; by default the run's student.

        Returns:
            `figures` (by measure, None where it could not be had), `unavailable` (why) and `settings`.
        """
        path = folder / HELD_OUT
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if found.get("settings") == self.settings:
                return found
        model = load() if load is not None else load_model(folder / "student")
        found = {**self.measure(model), "settings": self.settings}
        write_atomically(path, json.dumps(found, indent=2) + "\n")
        return found

    def measure(self, model: PreTrainedModel) -> dict[str, Any]:
        """Measure a model; what the held-out text is too small for is None, with the reason."""
        model = model.to(self._teacher.device).eval()
        figures: dict[str, float | None] = {measure.key: None for measure in MEASURES}
        unavailable: dict[str, str] = {}
        for name, take in (("agreement", self._agreement), ("retrieval", self._retrieval), ("layers", self._layers)):
            try:
                figures |= {key: value if _is_number(value) else None for key, value in take(model).items()}
            except LimbeckError as error:
                unavailable[name] = str(error)
        return {"figures": figures, "unavailable": unavailable}

    def _agreement(self, model: PreTrainedModel) -> dict[str, float | None]:
        ours = pair_similarities(model, self._tokenizer, self._pairs, **self._encoding)
        return {"agreement": spearman_agreement(ours.numpy(), self._of_teacher.numpy())}

    def _retrieval(self, model: PreTrainedModel) -> dict[str, float | None]:
        found = measure_retrieval(model, self._tokenizer, self._retrieval_pairs, **self._encoding)
        return {"retrieval": found.mrr_at_10}

    def _layers(self, model: PreTrainedModel) -> dict[str, float | None]:
        relations, explained = compare_last_layers(model, self._teacher, self._batches, heads=self._heads)
        return {"relations": relations, "explained": explained}

    @cached_property
    def _documents(self) -> list[tuple[str, str] | str]:
        found = self._corpus.held_out_documents()
        return [(document.title, document.body) if document.title else document.text for document in found]

    @cached_property
    def _pairs(self) -> list[tuple[str, str]]:
        plain = [text if isinstance(text, str) else "\n".join(text) for text in self._documents]
        return [(pair.first, pair.second) for pair in build_pairs(plain, self._spec.pairs)]

    @cached_property
    def _of_teacher(self) -> Tensor:
        return pair_similarities(self._teacher, self._tokenizer, self._pairs, **self._encoding)

    @cached_property
    def _retrieval_pairs(self) -> list[tuple[str, str]]:
        return build_retrieval_pairs(self._documents, self._spec.retrieval_pairs)

    @cached_property
    def _batches(self) -> list[dict[str, Tensor]]:
        """The first held-out blocks, in the order of the sources, in at least three batches where there are three."""
        rows = self._corpus.held_out
        count = min(self._spec.blocks, len(rows))
        if count == 0:
            raise CorpusError("No text is held out; give corpus.held_out a share above 0.")
        size = min(_BATCH, max(1, count // 3))
        collate = PadCollator(self._tokenizer.pad_token_id, side=self._tokenizer.padding_side)
        return [
            collate([rows[index] for index in range(start, min(start + size, count))])
            for start in range(0, count, size)
        ]


def _is_number(value: float | None) -> bool:
    """Whether a figure is one: vectors that are all alike have neither ranks nor variance."""
    return value is not None and math.isfinite(value)
