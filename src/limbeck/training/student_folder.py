"""The folder of a student: an ordinary folder of transformers, written whole or not at all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import save_file
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.files import atomic_folder
from limbeck.core.permissions import give_ordinary_mode
from limbeck.models import families, tokenizers
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentences import TRAINED_WIDTHS, SentenceModule, SentencePooling
from limbeck.recipe.model_plans import StudentPlan
from limbeck.training.learned_maps import Learned, kept_maps

_MAP_FOLDER = "2_Dense"
"""Place of a kept map in a folder of sentence-transformers: behind `0` the Transformer and `1_Pooling`."""


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
        widths: Widths below the whole that the vectors were trained to be cut to.
    """
    with atomic_folder(folder) as partial:
        if sentence is not None:
            sentence = _with_kept_map(sentence, partial, learned)
            if widths:
                # The whole width may be asked for too.
                whole_width = sentence.width(student.config.hidden_size)
                setattr(student.config, TRAINED_WIDTHS, [whole_width, *widths])
        with _dropouts_of(plan.config, student), quiet():
            student.save_pretrained(str(partial))
        give_ordinary_mode(partial.glob("*.safetensors"))

        max_length = None if sentence is None else sentence.max_length
        tokenizers.save_tokenizer(partial, tokenizer, student, max_length)
        if sentence is not None:
            write_sentence_transformers_files(
                partial,
                width=student.config.hidden_size,
                pooling=sentence.pooling,
                normalize=sentence.normalize,
                max_length=sentence.max_length,
                like=sentence,
            )


def finished_head(sentence: SentencePooling, learned: Learned | None) -> SentenceHead:
    """Make the head that gives the sentence vectors of a student in memory, with the map that it keeps, if any.

    Args:
        sentence: How they are made, but for that map.
        learned: Maps of the stage that taught the student finished vectors; None if no stage did.
    """
    with TemporaryDirectory() as folder:
        return SentenceHead(_with_kept_map(sentence, Path(folder), learned))


def _with_kept_map(sentence: SentencePooling, folder: Path, learned: Learned | None) -> SentencePooling:
    """Write the map that a student keeps, as a module of sentence-transformers, and put it behind the pooling.

    Args:
        sentence: How sentence vectors are made, but for the map.
        folder: The student's folder.
        learned: Maps of the stage that taught these vectors; None if no stage did.

    Returns:
        The same with the map in place of other modules; unchanged where no map is kept.
    """
    if learned is None:
        return sentence
    maps = kept_maps(learned.terms)
    if not maps:
        return sentence
    # A student keeps one map at most, which several terms may share.
    map_name, spec = next(iter(maps.items()))
    weights = {}
    for name in ("weight", "bias") if spec.bias else ("weight",):
        tensor = learned.weights[f"maps.{map_name}.{name}"]
        weights[f"linear.{name}"] = tensor.float().contiguous()
    place = folder / _MAP_FOLDER
    place.mkdir()
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    give_ordinary_mode(place.glob("*.safetensors"))
    module = SentenceModule(
        "Dense",
        folder=place,
        in_width=spec.inputs,
        out_width=spec.outputs,
        bias=spec.bias,
        activation="Identity",
    )
    return replace(sentence, modules=(module,))


@contextmanager
def _dropouts_of(config: PreTrainedConfig, student: PreTrainedModel) -> Iterator[None]:
    """Give a student's configuration the dropout rates of another one inside the block."""
    names = families.family_of(config).fields.dropouts
    rates_of_training = {name: getattr(student.config, name) for name in names}
    try:
        for name in names:
            setattr(student.config, name, getattr(config, name))
        yield
    finally:
        for name, rate in rates_of_training.items():
            setattr(student.config, name, rate)
