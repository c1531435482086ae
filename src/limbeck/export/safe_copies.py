"""A copy of a model whose weights are pickles, with safetensors in their place, for as long as it is exported.

A *pickle* is Python's own file format, in which older models have their weights. Loading one can run code that the file
holds. So all other parts of an export refuse pickles; `limbeck.core.pickles`, which converts them here, reads them in a
process of its own, without running code.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from limbeck.core.pickles import convert_pickles
from limbeck.errors import ModelError
from limbeck.models.folder_files import MODULES, read_json, read_modules
from limbeck.models.heads import has_head, model_class
from limbeck.models.loading import load_config, load_model
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_reader import sentence_root
from limbeck.models.sentences import LIBRARY_CONFIG
from limbeck.models.weight_files import SMALL_FILES, WEIGHTS, fetch_pickles

_OLDER_NAMES = ("ForPreTraining", "WithLMHead")
"""Ends of older names of classes with a masked language model."""


@contextmanager
def safe_copy(name: str, beside: Path) -> Iterator[str]:
    """Yield a folder with a copy of a model whose weights are pickles, with safetensors in their place.

    Args:
        name: A model's folder or a Hub name.
        beside: The folder of the export, which need not exist. The copy lies beside it, on the same disk, and is
            removed at the end.

    Raises:
        ModelError: see `limbeck.core.pickles.convert_pickles` and `limbeck.models.weight_files.fetch_pickles`.
    """
    pickles = fetch_pickles(name)
    folder = pickles[0].parent
    # The folder that is copied: the Transformer's, or that of the whole sentence-transformers model around it.
    root = folder
    files = _transformer_files(folder)
    # Only the Transformer's files of a Hub name were fetched.
    if is_local(resolve_model(name)):
        root, sentence_files = _sentence_files(folder)
        files |= sentence_files

    # The nearest folder above the export that exists.
    existing_folder = next(parent for parent in beside.absolute().parents if parent.is_dir())
    with TemporaryDirectory(prefix=".limbeck-safe-copy-", dir=existing_folder) as scratch:
        for file in files:
            copy = Path(scratch, file.relative_to(root))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        transformer = Path(scratch, folder.relative_to(root))
        convert_pickles(pickles, transformer / WEIGHTS)
        _name_head(transformer)
        # An error that the caller meets while it uses the copy is raised here. Its message names the copy, which is
        # gone by the time that it is read, so the model's own folder takes its place.
        try:
            yield scratch
        except ModelError as error:
            raise type(error)(str(error).replace(scratch, str(root))) from None


def _transformer_files(folder: Path) -> set[Path]:
    """Return the configuration and tokenizer files of a model's folder."""
    files = set()
    for pattern in SMALL_FILES:
        for file in folder.glob(pattern):
            # An index names the files of the pickles, which are not copied. `modules.json` is one of the files of the
            # root, see `_sentence_files`.
            if file.name != MODULES and not file.name.endswith(".index.json"):
                files.add(file)
    return files


def _sentence_files(folder: Path) -> tuple[Path, set[Path]]:
    """Return the root of a sentence-transformers folder, and its files beside those of the Transformer.

    Args:
        folder: The Transformer's folder: the root itself, or a folder in it.
    """
    root = sentence_root(folder)
    modules = read_modules(root)
    possible_files = set()
    if modules:
        possible_files = {root / MODULES, root / LIBRARY_CONFIG}
    for module in modules:
        # The files of the Transformer are in `folder`.
        if module.class_name != "Transformer":
            module_folder = module.folder(root)
            possible_files |= {module_folder / "config.json", module_folder / WEIGHTS}
    return root, {file for file in possible_files if file.is_file()}


def _name_head(folder: Path) -> None:
    """Give the head of a masked language model the name that transformers has for it today, in `config.json`.

    Older classes, such as `BertForPreTraining`, saved the same head among others. The copy is changed in place.
    """
    config = load_config(folder)
    names = config.architectures or []
    is_older = any(name.endswith(_OLDER_NAMES) for name in names)
    if not is_older or not has_head(config, "masked_lm"):
        return
    try:
        load_model(folder, head="masked_lm")
    except ModelError:
        # The checkpoint has another head, as ELECTRA's pretraining has: the name stays.
        return
    values = read_json(folder / "config.json", {})
    values["architectures"] = [model_class(config, "masked_lm").__name__]
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
