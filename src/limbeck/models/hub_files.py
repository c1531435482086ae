"""Fetching a model's files from the Hub into its cache, from where they are read like those of any folder."""

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlparse

from huggingface_hub import constants as hub_constants

from limbeck.errors import ModelError
from limbeck.models.folder_files import MODULES
from limbeck.models.locating import is_local, resolve_model

_SHAPE_LIKE = re.compile(r"\d+[^/\d]+\d+\w*")
"""Text such as 6-384, which was probably meant as the shape of a student."""
_READ_ENDINGS = (".json", ".txt", ".model", ".safetensors", ".jinja", ".bin")
"""Endings of the files that are read; links to others do no harm."""
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def fetch(name: str | Path, revision: str | None, wanted: Sequence[str]) -> Path:
    """Return the folder of a model's files; those of a Hub name are fetched into the Hub's cache.

    Files come from the revision itself: what the Hub's converting service offers in a pull request is not taken.

    Args:
        name: A folder, `package:NAME`, or a Hub name.
        revision: A branch, tag or commit on the Hub; None is `main`.
        wanted: Names or patterns of files in the top folder, or else names of files in folders inside; a call cannot
            ask for both. Files that do not exist are left out.

    Raises:
        ModelError: for what `resolve_model` refuses, a Hub name that cannot be reached, and a link that leads outside.
    """
    resolved = resolve_model(name)
    folder = Path(resolved)
    if not is_local(resolved):
        # Imported here: the clients of the network take longer to import than all else.
        from huggingface_hub import snapshot_download

        # A pattern such as *.json also matches files in folders inside. They are ignored unless `wanted` names these.
        only_inside = all("/" in file for file in wanted)
        ignored = None if only_inside else "*/*"
        try:
            snapshot = snapshot_download(
                resolved,
                revision=revision,
                allow_patterns=list(wanted),
                ignore_patterns=ignored,
                local_files_only=not hub_answers(),
            )
        except Exception as error:  # Of the network, the Hub, the cache: each has its own class.
            raise unreachable(name) from error
        folder = Path(str(snapshot))
    _check_links(folder)
    return folder


def check_there(*names: str | Path) -> None:
    """Refuse models that are neither a folder, nor in the Hub's cache, nor on the Hub.

    Of a folder, only the names of its files are looked at, so that a folder without a model is refused at once. The
    folder of a run or of a fine-tuning stands for the model that is in it, see `resolve_model`. For a name that is not
    in the cache, the Hub is asked for `config.json`. This does not import transformers, which takes long.

    Raises:
        ModelError: for the first such name, or the first folder without a model. Names that can only be folders are
            checked before the Hub is asked.
    """
    # All names are resolved before the Hub is asked for any. A folder with a model stays as it is: it may be a router,
    # which resolves to no single folder.
    resolved_names = [resolve_model(name) for name in names if not _is_model_folder(name)]
    for name in resolved_names:
        if is_local(name):
            continue
        cached = Path(hub_constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
        if cached.is_dir():
            continue
        # This comes before the import of the Hub's client, which takes longer than all else.
        if not hub_answers():
            raise unreachable(name)
        fetch(name, revision=None, wanted=("config.json",))


def _is_model_folder(name: str | Path) -> bool:
    """Whether a name is a folder with the configuration of a model, or with modules of sentence-transformers."""
    if not is_local(str(name)):
        return False
    return any((Path(name) / file).is_file() for file in ("config.json", MODULES))


def check_fetched(name: str | Path) -> None:
    """Refuse a Hub name for which only the Hub's cache was asked; called when a file of the model is missing.

    Raises:
        ModelError: for a Hub name while the Hub cannot be asked, since it may well have the file.
    """
    is_on_hub = not is_local(resolve_model(name))
    if is_on_hub and not hub_answers():
        raise unreachable(name)


def hub_answers() -> bool:
    """Return whether the Hub can be asked: not in offline mode, and its name resolves or a proxy is set.

    Without this a machine without network waits some 20 seconds for retries before the error.
    """
    if hub_constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in _PROXIES):
        return True
    host = urlparse(hub_constants.ENDPOINT).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def unreachable(name: str | Path) -> ModelError:
    """Return the error for a name that neither the disk nor the Hub gave."""
    hint = ""
    if _SHAPE_LIKE.fullmatch(str(name)):
        hint = " A shape is written LAYERSxHIDDEN, such as 6x384."
    return ModelError(
        f"Cannot get '{name}': there is no such folder, it is not in the Hub's cache, and the Hub does not have it or "
        "cannot be reached; check the spelling and the connection (HF_HUB_OFFLINE, a token for gated models), or "
        f"give a local folder.{hint}"
    )


def _check_links(folder: Path) -> None:
    """Refuse links to files outside of a folder, whose content would be copied on with the model.

    A folder that was unpacked or cloned may hold them. Links to files of the same name are accepted, since users make
    them to save space, and so are those of the Hub's cache.
    """
    resolved_folder = folder.resolve()
    # The Hub's cache keeps the files of a snapshot as blobs in a folder above it.
    blob_folders = [parent / "blobs" for parent in resolved_folder.parents]
    for entry in folder.iterdir():
        if entry.suffix not in _READ_ENDINGS or not entry.is_symlink():
            continue
        target = entry.resolve()
        is_inside = target.is_relative_to(resolved_folder)
        has_same_name = target.name == entry.name
        if not (is_inside or has_same_name or target.parent in blob_folders):
            raise ModelError(
                f"'{entry}' is a link to '{target}', a file in another place, which is not followed; put a copy of "
                "the file there in place of the link."
            )
