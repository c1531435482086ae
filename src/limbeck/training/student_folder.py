"""The folder of a student: an ordinary folder of transformers, written whole or not at all.

A student of sentence vectors may keep one *map*: a linear layer that was learned in training, and that carries its
pooled vectors into the space of its teacher. In the student's folder it is a module `Dense` of sentence-transformers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.files import atomic_folder
from limbeck.core.permissions import give_ordinary_mode
from limbeck.methods.term import LearnedMap
from limbeck.models import families, tokenizers
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentences import TRAINED_WIDTHS, SentenceModule, SentencePooling
from limbeck.recipe.model_plans import StudentPlan
from limbeck.training.learned_maps import Learned, kept_maps

_MAP_FOLDER = "2_Dense"
"""Folder of the kept map inside the student's folder.

sentence-transformers names the folder of a module by its index and its class. Module 0 is the Transformer, in the
student's folder itself, and module 1 the pooling, so the map is module 2. `write_sentence_transformers_files` gives it
the same name, and then finds its weights in their place.
"""


class _KeptMap(NamedTuple):
    """A learned map that stays part of the student.

    Attributes:
        spec: Widths of the map, and whether it has a bias.
        weights: Its `weight` and, if it has one, its `bias`.
    """

    spec: LearnedMap
    weights: dict[str, Tensor]


def save_student(
    folder: Path,
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    plan: StudentPlan,
    *,
    sentence: SentencePooling | None,
    learned: Learned | None = None,
    widths: Sequence[int] = (),
) -> None:
    """Write the student's folder.

    Args:
        folder: Appears complete; one that is there is replaced.
        student: The student, without taps.
        tokenizer: The teacher's tokenizer, which is the student's too.
        plan: The student's plan. The dropout rates of its configuration are written, not those of the training.
        sentence: How sentence vectors are made, if the student makes any.
        learned: Maps of the stage that taught these vectors, one of which the student may keep.
        widths: Smaller widths that the vectors were trained to be cut to.
    """
    with atomic_folder(folder) as unfinished:
        if sentence is not None:
            kept_map = _kept_map(learned)
            if kept_map is not None:
                map_folder = unfinished / _MAP_FOLDER
                _write_map_weights(kept_map, map_folder)
                sentence = _vectors_with_map(sentence, kept_map.spec, map_folder)
            if widths:
                # The whole width is listed too, since users may ask for it.
                whole_width = sentence.width(student.config.hidden_size)
                setattr(student.config, TRAINED_WIDTHS, [whole_width, *widths])
        with _dropout_rates_of(plan.config, student), quiet():
            student.save_pretrained(str(unfinished))
        give_ordinary_mode(unfinished.glob("*.safetensors"))

        max_length = None if sentence is None else sentence.max_length
        tokenizers.save_tokenizer(unfinished, tokenizer, student, max_length)
        if sentence is not None:
            write_sentence_transformers_files(
                unfinished,
                width=student.config.hidden_size,
                pooling=sentence.pooling,
                normalize=sentence.normalize,
                max_length=sentence.max_length,
                like=sentence,
            )


def finished_head(sentence: SentencePooling, learned: Learned | None) -> SentenceHead:
    """Make the head that gives the sentence vectors of a student in memory, with the map that it keeps, if any.

    Args:
        sentence: How the sentence vectors are made, without that map.
        learned: Maps of the stage that taught the student finished vectors; None if no stage did.
    """
    kept_map = _kept_map(learned)
    if kept_map is None:
        return SentenceHead(sentence)
    # A head reads the weights of its modules from files as it is made; afterwards the files are not needed.
    with TemporaryDirectory() as folder:
        map_folder = Path(folder) / _MAP_FOLDER
        _write_map_weights(kept_map, map_folder)
        return SentenceHead(_vectors_with_map(sentence, kept_map.spec, map_folder))


def _kept_map(learned: Learned | None) -> _KeptMap | None:
    """Return the map that a student keeps; None if it keeps none, or if no stage taught its sentence vectors."""
    if learned is None:
        return None
    maps = kept_maps(learned.terms)
    if not maps:
        return None
    # A student keeps one map at most, which several terms may share.
    map_name = next(iter(maps))
    spec = maps[map_name]
    # A `DistillationModule` has its maps in the module dictionary `maps`.
    weights = {"weight": learned.weights[f"maps.{map_name}.weight"]}
    if spec.bias:
        weights["bias"] = learned.weights[f"maps.{map_name}.bias"]
    return _KeptMap(spec, weights)


def _write_map_weights(kept_map: _KeptMap, folder: Path) -> None:
    """Write the weights of a map to a new folder, as a module `Dense` of sentence-transformers has them."""
    folder.mkdir()
    weights = {f"linear.{name}": tensor.float().contiguous() for name, tensor in kept_map.weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    give_ordinary_mode(folder.glob("*.safetensors"))


def _vectors_with_map(sentence: SentencePooling, spec: LearnedMap, folder: Path) -> SentencePooling:
    """Describe sentence vectors that have a map as the only module behind the pooling.

    Args:
        sentence: How sentence vectors are made without the map. A student that keeps a map learned no other modules.
        spec: Widths and bias of the map.
        folder: The folder that holds its weights.
    """
    module = SentenceModule(
        "Dense",
        folder=folder,
        in_width=spec.inputs,
        out_width=spec.outputs,
        bias=spec.bias,
        activation="Identity",
    )
    return replace(sentence, modules=(module,))


@contextmanager
def _dropout_rates_of(config: PreTrainedConfig, student: PreTrainedModel) -> Iterator[None]:
    """Give a student's configuration the dropout rates of another one inside the block, and its own after it."""
    names = families.family_of(config).fields.dropouts
    rates_of_training = {name: getattr(student.config, name) for name in names}
    try:
        for name in names:
            setattr(student.config, name, getattr(config, name))
        yield
    finally:
        for name, rate in rates_of_training.items():
            setattr(student.config, name, rate)
