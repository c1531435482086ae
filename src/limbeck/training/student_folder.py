"""The folder of a student: an ordinary one of transformers, whole or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.files import atomic_folder
from limbeck.core.permissions import give_ordinary_mode
from limbeck.models import families, tokenizers
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentences import TRAINED_WIDTHS, SentenceModule, SentencePooling
from limbeck.recipe.model_plans import StudentPlan
from limbeck.training.learned_maps import Learned


def save_student(
    folder: Path,
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    choice: StudentPlan,
    *,
    sentence: SentencePooling | None,
    learned: Learned | None = None,
    widths: Sequence[int] = (),
) -> None:
    """Write the student's folder.

    Args:
        folder: Appears complete; one that is there is replaced.
        student: The student, without taps.
        tokenizer: The teacher's, which is the student's too.
        choice: The student, whose dropout rates go into the configuration; those of training are the run's.
        sentence: How sentence vectors are made, if the student makes any.
        learned: What the stage learned that taught them, of which the student may keep a map.
        widths: Below the whole, to which they were trained to be cut.
    """
    names = families.family_of(choice.config).fields.dropouts
    trained = {name: getattr(student.config, name) for name in names}
    with atomic_folder(folder) as partial:
        if learned is not None and sentence is not None and (kept := write_kept_map(partial, learned)) is not None:
            sentence = replace(sentence, modules=(kept,))
        if sentence is not None and widths:  # The whole may be asked for too.
            setattr(student.config, TRAINED_WIDTHS, [sentence.width(student.config.hidden_size), *widths])
        try:
            for name in names:
                setattr(student.config, name, getattr(choice.config, name))
            with quiet():
                student.save_pretrained(str(partial))
        finally:
            for name, value in trained.items():
                setattr(student.config, name, value)
        give_ordinary_mode(partial.glob("*.safetensors"))
        tokenizers.save_tokenizer(partial, tokenizer, student, None if sentence is None else sentence.max_length)
        if sentence is not None:
            write_sentence_transformers_files(
                partial,
                width=student.config.hidden_size,
                pooling=sentence.pooling,
                normalize=sentence.normalize,
                max_length=sentence.max_length,
                like=sentence,
            )


def write_kept_map(folder: Path, learned: Learned) -> SentenceModule | None:
    """Write the map that a student keeps, as a module of sentence-transformers; None where it keeps none.

    Args:
        folder: The student's.
        learned: Of the stage that taught its vectors.
    """
    term = next((term for term in learned[0] if term.learned_map is not None and term.learned_map.kept), None)
    if term is None or term.learned_map is None:
        return None
    place, spec = folder / "2_Dense", term.learned_map
    place.mkdir()
    parts = ("weight", "bias") if spec.bias else ("weight",)
    weights = {f"linear.{part}": learned[1][f"maps.{term.map_name}.{part}"].float().contiguous() for part in parts}
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    give_ordinary_mode(place.glob("*.safetensors"))
    return SentenceModule("Dense", place, (spec.inputs, spec.outputs), spec.bias, "Identity")


def finished_head(sentence: SentencePooling, learned: Learned | None) -> SentenceHead:
    """Return what makes the sentence vectors of a student that is in memory, with the map that it keeps, if any.

    Args:
        sentence: How they are made, but for that map.
        learned: Of the stage that taught them finished vectors, if one did.
    """
    if learned is None:
        return SentenceHead(sentence)
    with TemporaryDirectory() as folder:
        kept_module = write_kept_map(Path(folder), learned)
        return SentenceHead(sentence if kept_module is None else replace(sentence, modules=(kept_module,)))
