"""`CombinedTeaching`: several teachings as one, whose sentence vectors and scores of texts become those of one teacher.

A *member* is one of the teachings. Streams of layers and tokens are passed on from the member that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.core import ranks
from limbeck.core.devices import choose_device
from limbeck.core.folders import writing
from limbeck.corpus.batches.batch import Batch, read_batch
from limbeck.methods.teaching import Teaching
from limbeck.models.packing import send_batch
from limbeck.models.score_combination import combine_scores
from limbeck.models.streams import OF_SENTENCES, StreamKey, Streams
from limbeck.models.teaching_facts import TeachingFacts
from limbeck.models.vector_combination import VectorCombination, averaged, concatenated

COMBINATION = "combined_teachers.safetensors"
"""File in a run's folder with the linear map of each teacher's sentence vectors."""


@dataclass(frozen=True)
class CombinedMember:
    """One of several teachings.

    Args:
        teaching: The teaching.
        weight: How much it counts beside the others.
        classes: For each class of the first member, the index of the class of the same name among its own.
    """

    teaching: Teaching
    weight: float
    classes: tuple[int, ...] = ()

    def stream(self, streams: Streams, name: str) -> Tensor:
        """Return one of its streams of whole texts."""
        return streams[StreamKey(name, self.teaching.facts.output_layer)]


class CombinedTeaching(Teaching):
    """Gives the combined outputs of several teachings; `prepare` is called before vectors are read.

    Args:
        facts: The facts of all together.
        members: The teachings.
        names: Names of the streams that are combined; others are those of a single member.
        vectors: How sentence vectors are combined.
        mean_of: What the mean of scores is of.
    """

    def __init__(
        self,
        facts: TeachingFacts,
        members: Sequence[CombinedMember],
        names: Collection[str],
        *,
        vectors: Literal["concatenated", "averaged"],
        mean_of: Literal["probabilities", "logits"],
    ) -> None:
        self.facts = facts
        self.members = tuple(members)
        self._combined_names = frozenset(names)
        self._vectors = vectors
        self._mean_of: Literal["probabilities", "logits"] = mean_of
        # Terms on scores over a vocabulary are those of one member, which decides how it gives them.
        self.from_hidden = all(member.teaching.from_hidden for member in self.members)
        self.combination: VectorCombination | None = None

    @property
    def _weights(self) -> list[float]:
        return [member.weight for member in self.members]

    def prepare(self, folder: Path | None, read_text: Callable[[], Iterable[Mapping[str, Tensor]]]) -> None:
        """Find the linear map of each teacher's vectors by a sample of the text, or read those of the run's folder."""
        # Only sentence vectors are combined by maps.
        if not self._combined_names.intersection(OF_SENTENCES):
            return
        file = None if folder is None else folder / COMBINATION
        if file is not None and ranks.on_main_rank(file.is_file):
            self.combination = ranks.on_all_ranks(lambda: VectorCombination.load(file))
            return
        combination = ranks.on_all_ranks(lambda: self._fit(read_text()))
        # All processes take the maps of the main one: the sums of another process may differ in the last bits.
        self.combination = ranks.on_main_rank(lambda: combination)
        if file is not None:
            ranks.on_main_rank(lambda: _save(combination, file))

    def _fit(self, batches: Iterable[Mapping[str, Tensor]]) -> VectorCombination:
        """Find the linear maps by the vectors of some batches."""
        device = choose_device("auto")
        self.move(device)
        vectors_of_members: list[list[Tensor]] = [[] for _ in self.members]
        for columns in batches:
            batch = read_batch(send_batch(columns, device))
            for member, vectors in zip(self.members, vectors_of_members, strict=True):
                answer = member.teaching.read(batch)
                vectors.append(member.stream(answer, "vector").float().cpu())
        sample = [torch.cat(vectors) for vectors in vectors_of_members]
        if self._vectors == "averaged":
            return averaged(sample, self._weights)
        return concatenated(sample, self._weights, self.facts.widths["vector"])

    def read(self, batch: Batch, scored: Tensor | None = None) -> Streams:
        """Ask all members, and combine what they say of whole texts; see `Teaching.read`."""
        answers = [member.teaching.read(batch, scored) for member in self.members]
        # Streams that are not combined are those of a single member, and are passed on.
        streams: dict[StreamKey, Tensor] = {}
        for answer in answers:
            streams |= {key: stream for key, stream in answer.items() if key.name not in self._combined_names}

        # Streams of whole texts count as those of the last layer. A combined vector is both `pooled` and `vector`.
        layer = self.facts.output_layer
        vector_names = self._combined_names.intersection(OF_SENTENCES)
        if vector_names:
            assert self.combination is not None, "prepare comes first"
            vectors = [member.stream(answer, "vector") for member, answer in zip(self.members, answers, strict=True)]
            combined = self.combination.combine(vectors)
            for name in vector_names:
                streams[StreamKey(name, layer)] = combined
        if "logits" in self._combined_names:
            scores = []
            for member, answer in zip(self.members, answers, strict=True):
                # The classes of each member are put into the order of the first member's.
                scores_of_member = member.stream(answer, "logits")
                scores.append(scores_of_member[..., list(member.classes)])
            streams[StreamKey("logits", layer)] = combine_scores(scores, self._weights, mean_of=self._mean_of)
        return streams

    def missing(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which texts one of the members says nothing of, bool `[keys]`."""
        is_missing = np.zeros(len(keys), dtype=np.bool_)
        for member in self.members:
            is_missing |= member.teaching.missing(keys)
        return is_missing

    def move(self, device: torch.device | str, *, pack: bool = True) -> None:
        """Place all members on the device of the batches."""
        for member in self.members:
            member.teaching.move(device, pack=pack)

    def close(self) -> None:
        """Close all members, also where one of them fails to."""
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(member.teaching.close)


def _save(combination: VectorCombination, file: Path) -> None:
    """Write the linear maps into the folder of a run."""
    with writing(file.parent):
        combination.save(file)
