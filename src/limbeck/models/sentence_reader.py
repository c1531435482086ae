"""How a model makes sentence vectors, read from the files of sentence-transformers in its folder.

All other code that reads such a folder uses these functions. The model's *modules* are a Transformer, a pooling and
others behind it, such as linear maps. `modules.json` lists them, and its folder is the *root*. The Transformer's files
lie in the root itself, or in older layouts in a folder of the root; each other module has a folder there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from limbeck.errors import ModelError, suggestion
from limbeck.models.folder_files import MODULES, ModuleEntry, read_json, read_modules
from limbeck.models.hub_files import fetch
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_files import TRANSFORMER_CONFIG
from limbeck.models.sentence_modules import check_transformer, longest_input, pooling_mode, read_config, read_module
from limbeck.models.sentences import LIBRARY_CONFIG, SentenceModule, SentencePooling
from limbeck.models.weight_files import WEIGHTS

_LONGEST_PROMPT = 100_000
"""Most characters of a prompt."""
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_POOLING_FOLDER = "1_Pooling"
"""The folder in which sentence-transformers keeps the pooling of a model whose Transformer is the root."""

_FIRST_MODULES = ["Transformer", "Pooling"]
# Dropout does nothing outside of training.
_MODULES_BEHIND = ["Dense", "LayerNorm", "Normalize", "Dropout"]
# Modules of sentence-transformers that limbeck does not apply, with the reason.
# `Asym` is the name of a Router in older releases.
_NOT_APPLIED = {
    "Router": "it sends queries and documents to different models; give one of them",
    "Asym": "it sends queries and documents to different models; give one of them",
    "StaticEmbedding": "it has no Transformer to distil",
    "WordEmbeddings": "it has no Transformer to distil",
    "BoW": "it has no Transformer to distil",
    "CLIPModel": "it reads pictures too",
    "WeightedLayerPooling": "it mixes all layers; limbeck pools the last one",
    "WordWeights": "it weights words by its own list",
    "CNN": "it has layers between Transformer and pooling",
    "LSTM": "it has layers between Transformer and pooling",
}


def is_sentence_folder(folder: Path) -> bool:
    """Return whether a folder is the root of a model of sentence-transformers."""
    return (folder / MODULES).is_file()


def sentence_root(folder: str | Path) -> Path:
    """Return the root, given the Transformer's folder: the folder above if that lists modules, else the folder itself.

    Args:
        folder: As `resolve_model` returns it.
    """
    path = Path(folder)
    if not is_sentence_folder(path) and is_sentence_folder(path.parent):
        return path.parent
    return path


def fetch_sentence_root(name: str | Path, revision: str | None = None) -> Path:
    """Return the root of a model; of a Hub name its modules' files are fetched.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        revision: Of a Hub name: branch, tag or commit; None is `main`.

    Raises:
        ModelError: see `fetch`.
    """
    resolved = resolve_model(name)
    if is_local(resolved):
        return sentence_root(resolved)

    transformer_files = (TRANSFORMER_CONFIG, "tokenizer.json", "tokenizer_config.json")
    root = fetch(name, revision, (MODULES, LIBRARY_CONFIG, *transformer_files))
    # A call of `fetch` gives files of the root or of folders inside, so the latter need a call of their own.
    files_inside = []
    for module in read_modules(root):
        if module.place:
            folder = module.folder(root).relative_to(root)
            files_inside += [f"{folder}/{file}" for file in ("config.json", *transformer_files, WEIGHTS)]
    if not files_inside:
        return root
    return fetch(name, revision, files_inside)


def sentence_pooling(name_or_path: str | Path, revision: str | None = None) -> SentencePooling | None:
    """Read how a sentence-transformers folder makes its vectors; of a Hub name its small files are fetched.

    Args:
        name_or_path: A folder, `package:NAME` or a Hub name (see `resolve_model`).
        revision: Of a Hub name: branch, tag or commit; None is `main`.

    Returns:
        The description; None for a model without `modules.json` (an ordinary Transformer), or whose `modules.json`
        lists a Transformer alone.

    Raises:
        ModelError: for a missing folder, unreadable files, or modules that limbeck cannot apply: its vectors would
            differ from those of sentence-transformers.
    """
    root = fetch_sentence_root(name_or_path, revision)
    entries = read_modules(root)
    if not entries:
        return None
    # Every folder is checked to lie inside of the root before anything else is.
    folders = [entry.folder(root) for entry in entries]
    _check_classes(name_or_path, entries)
    if len(entries) == 1:
        return None

    # The order of the first two modules was checked above.
    transformer_folder = folders[0]
    pooling_folder = folders[1]
    pooling = read_config(pooling_folder)
    check_transformer(transformer_folder, tokenizer_folder=_tokenizer_folder(name_or_path, root))
    entries_behind = [entry for entry in entries[2:] if entry.class_name != "Dropout"]
    modules = [read_module(entry.class_name, entry.folder(root)) for entry in entries_behind]
    _check_widths(name_or_path, modules)
    # A last module that scales to length one is described by a field of its own.
    normalizes = bool(modules) and modules[-1].class_name == "Normalize"
    if normalizes:
        del modules[-1]

    prompts = read_prompts(root / LIBRARY_CONFIG)
    library = read_json(root / LIBRARY_CONFIG, {})
    similarity = library.get("similarity_fn_name")
    if similarity not in _SIMILARITIES:
        similarity = None
    truncate_dim = library.get("truncate_dim")
    # isinstance would accept true and false, which are whole numbers in Python.
    if type(truncate_dim) is not int:
        truncate_dim = None
    return SentencePooling(
        pooling=pooling_mode(pooling_folder / "config.json", pooling),
        normalize=normalizes,
        max_length=longest_input(transformer_folder),
        modules=tuple(modules),
        include_prompt=bool(pooling.get("include_prompt", True)),
        prompts=prompts.texts,
        default_prompt=prompts.default,
        similarity=similarity,
        truncate_dim=truncate_dim,
    )


def _tokenizer_folder(name: str | Path, root: Path) -> Path:
    """Return the folder of a model's tokenizer: that of its `config.json`, or the fetched root of a Hub name."""
    resolved = resolve_model(name)
    return Path(resolved) if is_local(resolved) else root


def _check_classes(name: str | Path, entries: Sequence[ModuleEntry]) -> None:
    """Refuse modules of other packages, unknown modules, and known modules in an unknown order.

    Args:
        name: The model, as the user named it.
        entries: Its modules in order.
    """
    for entry in entries:
        is_known = entry.class_name in (*_FIRST_MODULES, *_MODULES_BEHIND)
        is_of_library = entry.cls.startswith("sentence_transformers.")
        if not is_known or not is_of_library:
            reason = _NOT_APPLIED.get(entry.class_name, "it is unknown")
            raise ModelError(
                f"'{name}' makes its vectors with {entry.cls[:200]!r}, which limbeck cannot apply: {reason}. To "
                "use its Transformer alone, remove modules.json in a copy of the folder."
            )
    class_names = [entry.class_name for entry in entries]
    # A Transformer may stand alone, without a pooling.
    starts_well = class_names[:2] == _FIRST_MODULES[: len(class_names)]
    has_second_start = any(name in _FIRST_MODULES for name in class_names[2:])
    if not starts_well or has_second_start:
        raise ModelError(
            f"'{name}' makes its vectors with {', '.join(class_names)[:200]}, but limbeck can apply only a "
            "Transformer, a Pooling and further modules, in this order. To use its Transformer alone, remove "
            "modules.json in a copy of the folder."
        )


def _check_widths(name: str | Path, modules: Sequence[SentenceModule]) -> None:
    """Refuse a module whose input width is not the output width of the module before it."""
    width = None
    for module in modules:
        if module.in_width is None:
            continue
        if width is not None and module.in_width != width:
            raise ModelError(
                f"The module '{module.folder}' of '{name}' takes vectors of width {module.in_width}, but the "
                f"module before it gives {width}; copy or download the model again."
            )
        width = module.out_width


class Prompts(NamedTuple):
    """The prompts of a model.

    Attributes:
        texts: The prompts that are not empty, by name.
        default: The name of the prompt that is put before a text by default; None for no prompt.
    """

    texts: Mapping[str, str]
    default: str | None


def read_prompts(file: Path) -> Prompts:
    """Read the prompts of a model.

    Args:
        file: `config_sentence_transformers.json` in the root; it need not be there.

    Raises:
        ModelError: for prompts that are not names with texts, and for a default that is no name among them.
    """
    config = read_json(file, {})
    prompts = config.get("prompts") or {}
    default = config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(_is_prompt(text) for text in prompts.values()):
        raise ModelError(
            f"The prompts in '{file}' do not have the expected structure: give each prompt a name and a text."
        )
    if default is not None and default not in prompts:
        raise ModelError(
            f"default_prompt_name in '{file}' is {str(default)[:80]!r}.{suggestion(str(default), prompts)}"
        )
    texts = {name: text for name, text in prompts.items() if text}
    return Prompts(texts, default)


def _is_prompt(text: object) -> bool:
    """Whether a value of a file is text of a prompt's length."""
    return isinstance(text, str) and len(text) <= _LONGEST_PROMPT


def pooling_of_folder(root: Path) -> str | None:
    """Return the pooling in the folder `1_Pooling` of a root, whether or not its modules name it; None without one.

    Raises:
        ModelError: for a configuration that names no pooling, or one that limbeck does not know.
    """
    file = root / _POOLING_FOLDER / "config.json"
    config = read_json(file, {})
    return pooling_mode(file, config) if config else None


def check_pooling_named(name_or_path: str | Path) -> None:
    """Refuse a folder that holds modules which no `modules.json` names, unless they are a pooling by the mean.

    Such a folder was copied in part. Its vectors would silently be the mean of tokens, which is the default.

    Args:
        name_or_path: The model; of a Hub name no pooling is fetched that nothing names.

    Raises:
        ModelError: for such a folder.
    """
    root = Path(resolve_model(name_or_path))
    pooling = pooling_of_folder(root)
    # Folders of modules are named by their place and class, such as 2_Dense.
    folders_behind = [path.name for path in sorted(root.glob("[2-9]_*")) if not path.name.endswith("_Normalize")]
    if pooling not in (None, "mean"):
        problem = f"says {pooling}"
    elif folders_behind:
        problem = f"is followed by '{folders_behind[0]}'"
    else:
        return
    problem_of_list = f"has no {MODULES}"
    if is_sentence_folder(root):
        problem_of_list = f"names no pooling in {MODULES}"
    raise ModelError(
        f"'{name_or_path}' {problem_of_list}, so that its vectors would be the mean of tokens, but its "
        f"'{_POOLING_FOLDER}' {problem}: copy or download the model again, or ask for a pooling (method.pooling in a "
        "recipe of sentence_embedding, `evaluate --set pooling=…`)."
    )


def without_unread_pooler(names: Iterable[str], folder: Path) -> list[str]:
    """Return names of tensors without those of the pooler, if the model makes its sentence vectors without one.

    The *pooler* is the layer on the first token that some Transformers end with. It is no part of a pooling.

    Args:
        names: Names of the student's tensors.
        folder: The student's folder; if it lists modules, these make the vectors.
    """
    if not is_sentence_folder(folder):
        return list(names)
    return [name for name in names if not name.startswith("pooler.")]


def routes_of(name_or_path: str | Path) -> tuple[str, str] | None:
    """Return the folders of a router's models for queries and for documents; None for any other model.

    A *router* is a model of sentence-transformers that reads queries and documents with different modules.

    Args:
        name_or_path: The folder of a router, as `limbeck export --format router` writes it, or any model.

    Raises:
        ModelError: for a router whose models are no whole folders, or a `modules.json` that is no JSON.
    """
    try:
        folder = Path(name_or_path).expanduser()
        has_modules = is_sentence_folder(folder)
    except (RuntimeError, OSError, ValueError):
        # The name cannot be a folder's, so `resolve_model` refuses it or takes it for a Hub name.
        return None
    if not has_modules:
        return None

    modules = read_modules(folder)
    if not any(module.class_name in ("Router", "Asym") for module in modules):
        return None
    queries = folder / "query"
    documents = folder / "document"
    has_both_folders = is_sentence_folder(queries) and is_sentence_folder(documents)
    if len(modules) > 1 or not has_both_folders:
        raise ModelError(
            f"'{name_or_path}' sends queries and documents to different models, but does not store them as "
            "complete folders 'query' and 'document'; give the model for queries alone, and the model for "
            "documents as --teacher."
        )
    return str(queries), str(documents)
