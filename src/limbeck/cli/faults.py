"""Faults: the message on an unexpected error that ended a command, and the file for a bug report."""

import errno
import platform
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile

from limbeck.core.paths import RUN_RECORD
from limbeck.errors import describe_error

_OF_THE_MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.ENOMEM,
}  # fmt: skip
"""Errors of the system that are no fault of limbeck: a full disk, missing rights, too many open files …"""
_LONGEST_REASON = 300
"""Characters of the reason in a message on too little memory, which torch gives at length."""
_LONGEST_TEXT = 100_000
"""Characters of a YAML file in a report."""
_OUTPUT = re.compile(r"^output: *['\"]?([^'\"\n#]+)", re.MULTILINE)
"""The line of a recipe that names its output folder; the group is the folder."""
_SECRET_NAME = r"[\w-]*(?:token|secret|password|passwd|api[_-]?key|credentials?)"
_SECRET_VALUE = r"[^\s@,}]+"
_SECRETS = (
    # A value behind its name, such as `api_key=VALUE` or `"token": VALUE`.
    re.compile(rf"""({_SECRET_NAME}["']?\s*[=:]\s*){_SECRET_VALUE}""", re.IGNORECASE),
    # The value of an option, such as `--password VALUE`.
    re.compile(rf"(--{_SECRET_NAME}[^\S\n]+)\S+", re.IGNORECASE),
    # The password in an address, such as `postgres://me:PASSWORD@host`.
    re.compile(rf"(://[^\s/:@]*:){_SECRET_VALUE}"),
    # A token of the Hub; a name that begins like one, such as `hf_token: `, is behind the first pattern.
    re.compile(rf"""(\bhf_)(?![\w-]*["']?\s*[=:]){_SECRET_VALUE}""", re.IGNORECASE),
)
"""Secrets in a report. The group of a pattern is the part before the secret, which stays."""


def name_fault(error: Exception, arguments: Sequence[str]) -> str:
    """Return the message on an unexpected error: too little memory, a refusal of the system, or a fault of limbeck.

    A fault is written into a file for the bug report, which the message names.

    Args:
        error: The error.
        arguments: The arguments of the command line.
    """
    # Torch's errors are recognised by name, so that torch need not be imported: that of an accelerator by its class,
    # and that of a CPU, a RuntimeError, by the part of torch that its message names.
    is_of_torch = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    if isinstance(error, MemoryError) or is_of_torch:
        reason = describe_error(error)[:_LONGEST_REASON]
        return f"There is not enough memory: {reason}; use smaller batches, texts or models."
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        place = f": '{error.filename}'" if error.filename else ""
        return f"The operating system refused: {error.strerror}{place}; finished work is kept."
    try:
        file = write_fault(error, arguments)
    except OSError:
        return f"{describe_error(error)} (a fault in limbeck: run again with --debug and report what it prints)"
    return f"{describe_error(error)} (a fault in limbeck; the details for a bug report are in '{file}')"


def write_fault(error: Exception, arguments: Sequence[str]) -> Path:
    """Write what a report of a fault needs: versions, the command, its YAML files and the traceback.

    Nothing of the environment is in it, and values that are called tokens, keys, secrets or passwords are left out.

    Args:
        error: The fault.
        arguments: The arguments of the command line.

    Returns:
        The file: in the run's folder where there is one, else in the folder for temporary files.
    """
    from limbeck.core.machine import versions

    # The recipes and other YAML files that the command names, by their paths.
    documents = {}
    for name in arguments:
        if name.endswith((".yaml", ".yml")) and Path(name).is_file():
            documents[name] = Path(name).read_text(encoding="utf-8", errors="replace")[:_LONGEST_TEXT]

    packages = [f"{name} {version}" for name, version in versions().items()]
    parts = ["limbeck " + " ".join(arguments), "\n".join([platform.platform(), *packages])]
    parts += [f"{name}:\n{text}" for name, text in documents.items()]
    parts.append("".join(traceback.format_exception(error)))
    report = "\n\n".join(parts)
    for pattern in _SECRETS:
        report = pattern.sub(r"\1…", report)

    # The file is put into the folder of a run only. A new run would refuse a folder with a file that it does not know.
    # `dir=None` is the folder for temporary files.
    run_folder = None
    for folder in _output_folders(arguments, documents):
        if (folder / RUN_RECORD).is_file():
            run_folder = folder
            break
    with NamedTemporaryFile(
        "w", prefix="limbeck-fault-", suffix=".txt", dir=run_folder, delete=False, encoding="utf-8"
    ) as file:
        file.write(report)
    return Path(file.name)


def _output_folders(arguments: Sequence[str], documents: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders that a command writes to: by its option, and by its recipes."""
    words = []
    for argument in arguments:
        # `--output=DIR` is one argument, and `--output DIR` two.
        if argument.startswith("--"):
            words += argument.split("=", maxsplit=1)
        else:
            words.append(argument)
    for option, value in pairwise(words):
        if option in ("--output", "-o"):
            yield Path(value.strip())
    for text in documents.values():
        match = _OUTPUT.search(text)
        if match is not None:
            yield Path(match[1].strip())
