"""The format `router`: a folder of sentence-transformers with one model for queries and another for documents.

The two models are a student and its teacher, see `limbeck.models.router`. A text's *role* is `query` or `document`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from limbeck.export.format import FormatOptions
from limbeck.export.format_safetensors import Safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from limbeck.core.exports import Differences
    from limbeck.export.batches import Batch, Runner
    from limbeck.models.loaded import LoadedModel

Encoder: TypeAlias = "Callable[[Sequence[tuple[str, str | None]]], Tensor]"
"""Makes the vectors of texts, each given with its role, on which its prompt depends."""
LARGEST_DIFFERENCE = 1e-5
"""Largest difference of the folder's vectors from those of its two models, as a share of the largest value or of 1."""


class Router(Safetensors):
    """A folder of sentence-transformers whose queries go to a student, and whose documents to its teacher."""

    name = "router"
    title = "a sentence-transformers router"
    needs = ("sentence_transformers",)
    dtypes = ("float32",)
    options = ("documents",)
    reads_text = True
    tokenizer_folder = "query"

    def open(self, name: str, options: FormatOptions) -> LoadedModel:
        """Load the student and the model for documents; see `limbeck.models.router.open_pair`.

        Raises:
            ModelError: for models whose vectors cannot be compared.
        """
        from limbeck.models.router import open_pair

        return open_pair(name, options.documents)

    def write(self, source: LoadedModel, folder: Path, options: FormatOptions) -> dict[str, Any]:
        """Write both models, each a whole folder of sentence-transformers, and the files that join them."""
        from limbeck.export.small_files import public_name
        from limbeck.models.router import pair_of, share_of_own_documents
        from limbeck.models.sentence_files import router_prompts, write_router_files

        pair = pair_of(source)
        single_texts = [text for text in options.texts if isinstance(text, str)]  # Not pairs of texts.
        # Refuses models whose vectors have nothing in common, before anything is written.
        share_found = share_of_own_documents(pair, single_texts)
        for role, model in pair.by_role.items():
            role_folder = folder / role
            role_folder.mkdir()
            # Each of the two models is written as `Safetensors` writes one.
            super().write(model, role_folder, options)
        sentences = {role: model.sentence for role, model in pair.by_role.items() if model.sentence is not None}
        write_router_files(folder, sentences)
        return {
            "documents": public_name(pair.documents.name),
            "prompts": router_prompts(sentences),
            "found": share_found,
        }

    def reference(self, source: LoadedModel) -> Runner:
        """Run both models by limbeck, with the prompt of each role."""
        from limbeck.models.router import pair_of
        from limbeck.models.vector_check import own_vectors

        models = pair_of(source).by_role
        return _role_runner({role: partial(own_vectors, model) for role, model in models.items()})

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run both models by `encode_query` and `encode_document` of sentence-transformers."""
        from limbeck.models.router import pair_of
        from limbeck.models.vector_check import library_vectors, load_in_library

        # One function serves both roles, since each text is given with its role.
        encode = partial(library_vectors, load_in_library(folder))
        return _role_runner(dict.fromkeys(pair_of(source).by_role, encode))

    def check(self, differences: Differences, dtype: str, *, strict: bool) -> None:
        """Refuse vectors that are not those of the two models."""
        from limbeck.export.differences import check_differences

        check_differences(differences, dtype, bound=LARGEST_DIFFERENCE)


def _role_runner(encoders: Mapping[str, Encoder]) -> Runner:
    """Return a function that runs the models of both roles on the texts of batches, with an output for each role.

    Both models read the same texts, the student as queries and its teacher as documents.

    Args:
        encoders: The function that makes the vectors of texts for each role; it may be the same one.
    """

    def run(batch: Batch) -> dict[str, Tensor]:
        outputs = {}
        for role, encode in encoders.items():
            texts_with_role = [(str(text), role) for text in batch.texts]
            outputs[role] = encode(texts_with_role)
        return outputs

    return run
