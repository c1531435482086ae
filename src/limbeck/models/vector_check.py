"""sentence-transformers beside limbeck: the sentence vectors of one model by both, on the same texts.

The *role* of a text is `query`, `document` or None for neither; a model may have a prompt for a role.
"""

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from huggingface_hub import try_to_load_from_cache
from torch import Tensor

from limbeck.errors import ModelError, describe_error
from limbeck.models.inference import encode
from limbeck.models.loaded import LoadedModel, open_model
from limbeck.models.locating import is_local, locate_model, resolve_model
from limbeck.models.quiet import quiet
from limbeck.models.sample_texts import built_in_texts
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import fetch_sentence_root, sentence_pooling
from limbeck.models.sentences import prompt_names
from limbeck.models.weight_files import WEIGHTS, WEIGHTS_INDEX, weight_names

PACKAGE = "sentence_transformers"
LARGEST_DIFFERENCE = 1e-3
"""Largest allowed difference of sentence vectors from those of sentence-transformers; usually it is below 1e-5."""

Role: TypeAlias = str | None
_BATCH = 4
"""Texts that are read at once; they are few, so that a long text does not pad many others."""


class NotLoadedError(ModelError):
    """A model that sentence-transformers does not load."""


class ModelName(Protocol):
    """A model's place, as a recipe names it."""

    @property
    def model(self) -> str:
        """A folder, `package:NAME` or a Hub name."""
        ...

    @property
    def revision(self) -> str | None:
        """Of a Hub name: branch, tag or commit."""
        ...


def check_vectors(teachers: Mapping[str, ModelName], *, fetch: bool = True) -> dict[str, float | None]:
    """Compare limbeck's sentence vectors of teachers with those of sentence-transformers, and refuse any that differ.

    Args:
        teachers: The teachers by title.
        fetch: Whether to download weights from the Hub; else only models whose weights are on this machine are
            compared.

    Returns:
        The largest difference by title, see `compare_with_sentence_transformers`; None if that library does not load
        the model. Teachers that were not compared are left out.

    Raises:
        ModelError: for a difference above `LARGEST_DIFFERENCE`.
    """
    differences: dict[str, float | None] = {}
    for title, teacher in teachers.items():
        if not fetch and not _is_here(teacher):
            continue
        try:
            difference = compare_with_sentence_transformers(teacher.model, revision=teacher.revision)
        except NotLoadedError:
            # That does not show that limbeck's vectors are wrong.
            differences[title] = None
            continue
        # Without sentence vectors, or without the library, there is nothing to compare.
        if difference is None:
            continue
        if not _is_small(difference):
            raise ModelError(
                f"The sentence vectors that limbeck makes with '{title}' differ by up to {difference:.2g} from those "
                f"of sentence-transformers, but only {LARGEST_DIFFERENCE:g} is allowed: a student would learn wrong "
                "vectors. Please report the model. To distil its hidden states all the same, give a copy of its folder "
                "without modules.json."
            )
        differences[title] = difference
    return differences


def _is_here(teacher: ModelName) -> bool:
    """Whether a model's weights are on this machine."""
    resolved = resolve_model(teacher.model)
    if is_local(resolved):
        # A folder may hold only a configuration, which is enough to plan a run.
        return bool(weight_names(Path(resolved)))
    for name in (WEIGHTS, WEIGHTS_INDEX):
        cached = try_to_load_from_cache(teacher.model, name, revision=teacher.revision)
        # The answer is None for a file that is not cached, or an object that says that the Hub does not have it.
        if isinstance(cached, str):
            return True
    return False


def _is_small(difference: float) -> bool:
    """Whether a difference is allowed; NaN never is."""
    return difference <= LARGEST_DIFFERENCE


def compare_with_sentence_transformers(
    name: str | Path, texts: Sequence[tuple[str, Role]] | None = None, *, revision: str | None = None
) -> float | None:
    """Measure how far limbeck's sentence vectors of a model are from those of `SentenceTransformer.encode`.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        texts: Texts with their roles; None takes `sample_texts`.
        revision: Of a Hub name: branch, tag or commit; None is `main`.

    Returns:
        The largest absolute difference, as a share of the largest value where that is above 1. None if
        sentence-transformers is not installed, or if the model's files do not describe sentence vectors.

    Raises:
        ModelError: for a model that limbeck cannot load, or whose vectors change with the texts beside them.
        NotLoadedError: for one that sentence-transformers cannot.
    """
    if not is_installed() or sentence_pooling(locate_model(name), revision) is None:
        return None
    if texts is None:
        texts = sample_texts()
    source = open_model(name, revision)
    vectors = own_vectors(source, texts)
    folder = fetch_sentence_root(source.name, revision)
    pads_left = source.tokenizer.padding_side == "left"
    # A large model is let go before the library loads it a second time.
    del source

    # A text's vector may depend on the texts beside it: with padding on the left, and where a model's convolutions read
    # the padding. So where vectors differ, the library also reads the texts one by one.
    is_padding_read = False
    is_right_alone = False
    try:
        model = load_in_library(folder)
        batched = library_vectors(model, texts)
        difference = _largest_difference(vectors, batched)
        if not _is_small(difference):
            alone = library_vectors(model, texts, batch_size=1)
            is_padding_read = not _is_small(_largest_difference(batched, alone))
            is_right_alone = _is_small(_largest_difference(vectors, alone))
    except Exception as error:  # A release of the library may raise anything.
        raise NotLoadedError(
            f"sentence-transformers cannot load '{name}', so its sentence vectors cannot be compared: "
            f"{describe_error(error)}"
        ) from error
    if is_padding_read and pads_left and is_right_alone:
        raise ModelError(
            f"'{name}' pads texts on the left, so a text's vector from sentence-transformers changes with the "
            "other texts of the batch; set padding_side to right in its tokenizer_config.json."
        )
    if is_padding_read and not pads_left:
        raise ModelError(
            f"'{name}' reads the padding of a batch, so a text's vector changes with the other texts of the batch, "
            "by sentence-transformers too; choose another model, or distil hidden states of a copy of its folder "
            "without modules.json."
        )
    return difference


def _largest_difference(vectors: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference, as a share of the largest expected number where that is above 1."""
    if vectors.shape != expected.shape:
        return float("inf")
    unit = expected.abs().max().clamp(min=1.0)
    return float((vectors - expected).abs().max() / unit)


def describe_difference(difference: float | None) -> str:
    """Return a description of a difference in words; None stands for a model that the library cannot load."""
    if difference is None:
        return (
            "not compared, since the installed sentence-transformers does not load the model (`limbeck doctor "
            "--teacher` says why)"
        )
    return f"at most {difference:.1e} from those of sentence-transformers, on {len(sample_texts())} texts"


def sample_texts() -> list[tuple[str, Role]]:
    """Return 32 texts with their roles: several scripts, from an empty one to one that is longer than most models."""
    texts = [text for text in built_in_texts(pairs=False) if isinstance(text, str)]
    without_role: list[tuple[str, Role]] = [(text, None) for text in texts]
    queries: list[tuple[str, Role]] = [(text, "query") for text in texts[:6]]
    documents: list[tuple[str, Role]] = [(text, "document") for text in texts[6:12]]
    return without_role + queries + documents


def own_vectors(source: LoadedModel, texts: Sequence[tuple[str, Role]]) -> Tensor:
    """Return the vectors `[texts, width]` that limbeck makes, not scaled to another length.

    Args:
        source: A model that makes sentence vectors.
        texts: Texts with their roles, whose prompts are put before them.
    """
    assert source.sentence is not None
    return encode(
        source.model,
        source.tokenizer,
        [text for text, _ in texts],
        [role for _, role in texts],
        pooling=SentenceHead(source.sentence),
        max_length=source.longest,
        batch_size=_BATCH,
        normalize=False,
    )


def is_installed() -> bool:
    """Whether sentence-transformers can be asked."""
    return importlib.util.find_spec(PACKAGE) is not None


def load_in_library(folder: Path) -> Any:
    """Load a folder in sentence-transformers, on the CPU and in float32, without the network or code of the model."""
    from sentence_transformers import SentenceTransformer

    options = {"dtype": torch.float32, "use_safetensors": True}
    with quiet(), torch.random.fork_rng(devices=[]):
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=options)


def library_vectors(model: Any, texts: Sequence[tuple[str, Role]], *, batch_size: int = _BATCH) -> Tensor:
    """Return the vectors `[texts, width]` that sentence-transformers makes, by its method for each role.

    Version 6.2 gives every model an empty prompt `document`, and `encode_document` takes that even if the model has a
    prompt `passage` or `corpus`, which its documentation promises to take. So the prompt is named in the call.

    Args:
        model: A `SentenceTransformer`.
        texts: Texts with their roles.
        batch_size: Texts that are read at once.
    """
    encoders = {None: model.encode, "query": model.encode_query, "document": model.encode_document}
    # The texts of each role are encoded together, and their vectors put back into the order of the texts.
    vector_by_number: dict[int, Tensor] = {}
    for role, encode_by_role in encoders.items():
        text_numbers = [number for number, (_, role_of_text) in enumerate(texts) if role_of_text == role]
        if not text_numbers:
            continue
        options = {}
        names_of_prompts = [name for name in prompt_names(role) if model.prompts.get(name)]
        if names_of_prompts:
            options["prompt_name"] = names_of_prompts[0]
        texts_of_role = [texts[number][0] for number in text_numbers]
        with quiet(), warnings.catch_warnings(action="ignore"):
            vectors = encode_by_role(
                texts_of_role, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False, **options
            )
        vector_by_number.update(zip(text_numbers, vectors.float().cpu(), strict=True))
    return torch.stack([vector_by_number[number] for number in range(len(texts))])
