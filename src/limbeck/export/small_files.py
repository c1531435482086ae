"""The small files of an export beside its weights, and the names of models in its record."""

from pathlib import Path

from limbeck.core import paths
from limbeck.models.families import shape_of
from limbeck.models.loaded import LoadedModel
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.tokenizers import save_tokenizer


def write_small_files(source: LoadedModel, folder: Path, *, config: bool = True) -> None:
    """Write the tokenizer and, for a model of sentence vectors, the files of sentence-transformers.

    Args:
        source: The exported model.
        folder: The export's folder.
        config: Whether to write `config.json` too; False where it has been saved with the weights.
    """
    if config:
        with quiet():
            source.model.config.save_pretrained(str(folder))
    save_tokenizer(folder, source.tokenizer, source.model, source.longest)
    sentence = source.sentence
    if sentence is None:
        return
    # Prompts, similarity and the modules behind the pooling are those of the source (`like`). Its longest input may be
    # shorter than its description of sentence vectors says, since the model itself may not read as much.
    write_sentence_transformers_files(
        folder,
        width=shape_of(source.model.config).hidden,
        pooling=sentence.pooling,
        normalize=sentence.normalize,
        max_length=source.longest,
        like=sentence,
    )


def public_name(located: str) -> str:
    """Return a model's name for a record that may be published, without the path to its folder on this machine."""
    folder = Path(located).expanduser()
    if not folder.is_dir():
        return located
    folder = folder.resolve()
    if folder.name == paths.STUDENT:
        # The students of all runs have the same folder name, so the run's is put before it.
        return f"{folder.parent.name}/{folder.name}"
    return folder.name
