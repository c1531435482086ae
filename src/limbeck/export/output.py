"""The folder of an export: appears whole or not at all, and replaces nothing but an earlier export."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limbeck.errors import OutputError
from limbeck.models.locating import PACKAGE_PREFIX

RECORD = "export.json"


def default_output(located: str, export_format: str) -> Path:
    """Return where an export goes by default: beside the model's folder, or here for a package or a Hub name.

    Args:
        located: The model, as `limbeck.export.source.locate` gives it.
        export_format: Name of the format.
    """
    folder = Path(located).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        return folder.with_name(f"{folder.name}-{export_format}")
    return Path(f"{located.removeprefix(PACKAGE_PREFIX).replace('/', '-')}-{export_format}")


def check_output(output: Path, source: str, *, overwrite: bool) -> None:
    """Refuse a folder that must not be written, before anything is computed.

    Args:
        output: The export's folder.
        source: The model, as it was located; never replaced.
        overwrite: An earlier export may be replaced.

    Raises:
        OutputError: for a file, a folder that holds something, or one that the source is in.
    """
    output = output.expanduser()
    if output.exists() and not output.is_dir():
        raise OutputError(f"Output '{output}' is a file; give a folder.")
    origin = Path(source).expanduser().resolve()
    if origin.is_dir() and origin.is_relative_to(output.resolve()):
        raise OutputError(f"Output '{output}' holds the model that is exported; choose another folder.")
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not (output / RECORD).is_file():
        raise OutputError(f"Output folder '{output}' is not empty and holds no export; choose an empty or new folder.")
    if not overwrite:
        raise OutputError(f"Output folder '{output}' holds an export; replace it with --overwrite, or choose another.")


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `output` at the end, or is removed if anything fails.

    Args:
        output: Checked by `check_output`.

    Raises:
        OutputError: if it cannot be written.
    """
    output = output.expanduser()
    partial = output.with_name(f"{output.name}.{os.getpid()}.partial")
    replaced = output.with_name(f"{output.name}.{os.getpid()}.replaced")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        if output.is_dir():
            output.rename(replaced)
        partial.rename(output)
    except OSError as error:
        raise OutputError(f"Output folder '{output}' cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def list_files(folder: Path) -> dict[str, int]:
    """Return the bytes of every file below a folder, by relative name in order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write what is known of the export; a number that is none (NaN) is left out as null."""
    text = json.dumps(_plain(record), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
