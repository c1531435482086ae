"""The format `sentence-transformers`: a folder that `SentenceTransformer` loads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from limbeck.errors import ModelError
from limbeck.export.format import FormatOptions
from limbeck.export.format_safetensors import Safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from limbeck.export.batches import Batch, Runner
    from limbeck.models.loaded import LoadedModel


class SentenceTransformers(Safetensors):
    """A folder of sentence-transformers."""

    name = "sentence-transformers"
    title = "a sentence-transformers folder"
    needs = ("sentence_transformers",)
    reads_text = True

    def open(self, name: str, options: FormatOptions) -> LoadedModel:
        """Load a model without a head; where its files name no pooling, it gets that by the mean.

        Raises:
            ModelError: for a model with the head of a task.
        """
        from limbeck.models.sentences import SentencePooling

        source = super().open(name, options)
        if source.sentence is not None:
            return source
        if source.head not in (None, "masked_lm"):
            words = source.head.replace("_", " ")
            raise ModelError(
                f"'{source.name}' has a {words} head and does not make sentence vectors; export it with --format "
                "onnx or safetensors."
            )
        pooling = SentencePooling("mean", normalize=False, max_length=None)
        return replace(source, model=source.model.base_model, head=None, sentence=pooling)

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run the exported model with sentence-transformers, which reads text; `source` is not needed for that."""
        from sentence_transformers import SentenceTransformer

        from limbeck.export.outputs import SENTENCE
        from limbeck.models.quiet import quiet

        with quiet():
            model = SentenceTransformer(str(folder), device="cpu")

        def run(batch: Batch) -> dict[str, Tensor]:
            vectors: Tensor = model.encode(
                list(batch.texts), prompt="", convert_to_tensor=True, show_progress_bar=False
            )
            return {SENTENCE: vectors.float()}

        return run
