"""The examination of `limbeck doctor`, and the checks of packages and folders.

At the top nothing is imported that limbeck needs besides `packaging`: a damaged torch has to be found, not met. The
other parts are imported when they are reached.
"""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, TypeAlias, get_args

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from limbeck.core.lists import enumerate_words
from limbeck.errors import describe_error
from limbeck.export.formats import OWN_FORMATS
from limbeck.version import __version__

Status: TypeAlias = Literal["ok", "absent", "warning", "failed"]
"""`absent` is something optional that is not installed or not there."""

_BY_SEVERITY: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Finding:
    """One line of an examination.

    Args:
        name: Of its subject.
        status: How it is.
        text: The result in words.
        way_out: What to do about it; None where there is nothing to do.
        facts: The same for programs; fit for JSON.
    """

    name: str
    status: Status
    text: str
    way_out: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def worst(findings: Iterable[Finding]) -> Status:
    """Return the most severe status; `"ok"` of nothing, and what is only absent is well too."""
    severity = max((_BY_SEVERITY.index(finding.status) for finding in findings), default=0)
    return "ok" if _BY_SEVERITY[severity] == "absent" else _BY_SEVERITY[severity]


def gigabytes(count: int) -> str:
    """Return bytes as text, in units of 10^9."""
    return f"{count / 1e9:,.1f} GB"


PARTS = {
    "packages": "limbeck.diagnosis.checks:find_packages",
    "devices": "limbeck.diagnosis.machine:find_devices",
    "kernels": "limbeck.diagnosis.machine:find_kernels",
    "folders": "limbeck.diagnosis.checks:find_folders",
    "self-test": "limbeck.diagnosis.self_test:find_self_test",
}
"""Name to module and function, which yields findings. Where torch cannot be imported, that is a finding too."""
VECTORS = "limbeck.diagnosis.self_test:find_vectors"


def examine(begin: Callable[[str], None], teacher: str | None = None) -> Iterator[tuple[str, Finding]]:
    """Yield what is found, with the part that it belongs to.

    Without the packages that limbeck needs nothing else is looked at. A part that fails as a whole is a finding.

    Args:
        begin: Receives the name of each part before it is looked at.
        teacher: A model whose sentence vectors are examined last, see `limbeck.diagnosis.self_test.find_vectors`.
    """
    parts: dict[str, tuple[str, ...]] = {part: (place,) for part, place in PARTS.items()}
    if teacher is not None:
        parts["teacher"] = (VECTORS, teacher)
    for part, call in parts.items():
        begin(part)
        findings = []
        for finding in _find(*call):
            findings.append(finding)
            yield part, finding
        if part == "packages" and worst(findings) == "failed":
            return


def _find(place: str, *arguments: str) -> Iterator[Finding]:
    try:
        yield from resolve_name(place)(*arguments)
    except Exception as error:
        text = describe_error(error)
        yield Finding(
            "failure", "failed", text, "if the lines above do not explain it, report it together with all of them"
        )


NAME = "limbeck"
_WITH_PACKAGES = [each.name for each in OWN_FORMATS if each.needs]
USES = {
    "quickstart": "`limbeck quickstart`",
    "export": f"`limbeck export --format` {enumerate_words(_WITH_PACKAGES, 'and')}",
    "tensorboard": "training with `report_to: tensorboard`",
    "triton": "the fastest `relation_kl` on a GPU",
}
"""The extras that users choose, and what needs each; the others are for those who work on limbeck itself."""


def find_packages() -> Iterator[Finding]:
    """Yield Python, limbeck, its dependencies, and its extras."""
    yield find_python()
    yield find_limbeck()
    try:
        requirements = [Requirement(text) for text in metadata.requires(NAME) or ()]
        extras = metadata.metadata(NAME).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return
    yield from find_needed(requirements)
    for extra, use in USES.items():
        if extra in extras:
            yield find_extra(extra, use, requirements)
        else:
            text = f"for {use}: the installed limbeck does not define this extra"
            yield Finding(f"extra {extra}", "warning", text, f'pip install --upgrade "limbeck[{extra}]"')


def find_python() -> Finding:
    """Check the version of Python."""
    version, wanted = platform.python_version(), None
    with suppress(metadata.PackageNotFoundError):
        wanted = metadata.metadata(NAME)["Requires-Python"]
    facts = {"version": version, "platform": platform.platform()}
    text = f"Python {version} on {platform.platform()}"
    if not wanted or SpecifierSet(wanted).contains(version, prereleases=True):
        return Finding("python", "ok", text, facts=facts)
    return Finding("python", "failed", f"{text}; limbeck needs {wanted}", f"install Python {wanted}", facts)


def find_limbeck() -> Finding:
    """Compare the running limbeck with the installed one."""
    place = str(Path(__file__).parents[1])
    text = f"limbeck {__version__} in {place}"
    facts = {"version": __version__, "place": place}
    try:
        installed = metadata.version(NAME)
    except metadata.PackageNotFoundError:
        text += " is not installed, only imported: its requirements are unknown"
        return Finding(NAME, "warning", text, "pip install limbeck", facts)
    if installed != __version__:
        return Finding(NAME, "warning", f"{text}, installed as {installed}", "install it again, with pip", facts)
    return Finding(NAME, "ok", text, facts=facts)


def find_needed(requirements: list[Requirement]) -> Iterator[Finding]:
    """Yield what is missing or does not fit of what every command needs, and the versions of the rest."""
    versions = {}
    for requirement in requirements:
        if not _asked_for(requirement, ""):
            continue
        problem = problem_of(requirement)
        if problem is None:
            versions[requirement.name] = metadata.version(requirement.name)
        else:
            way_out = f'pip install "{requirement.name}{requirement.specifier}"'
            yield Finding(requirement.name, "failed", problem, way_out)
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Finding("needed packages", "ok", text, facts=versions)


def find_extra(extra: str, use: str, requirements: list[Requirement]) -> Finding:
    """Check the packages of an extra; one that is only partly there is absent."""
    mine = [one for one in requirements if _asked_for(one, extra) and not _asked_for(one, "")]
    problems = [problem for requirement in mine if (problem := problem_of(requirement)) is not None]
    facts = {requirement.name: installed_version(requirement.name) for requirement in mine}
    name = f"extra {extra}"
    if not mine:
        return Finding(name, "absent", f"not for this platform; for {use}", facts=facts)
    if problems:
        return Finding(name, "absent", f"for {use}: {'; '.join(problems)}", f'pip install "limbeck[{extra}]"', facts)
    return Finding(name, "ok", ", ".join(f"{package} {version}" for package, version in facts.items()), facts=facts)


def problem_of(requirement: Requirement) -> str | None:
    """Return why a requirement is not met, or None."""
    version = installed_version(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version} does not fit {requirement.specifier}"


def installed_version(package: str) -> str | None:
    """Return a package's version; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _asked_for(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement belongs to an extra, or to all (`""`), on this platform."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


LITTLE_ROOM = 2_000_000_000
"""Bytes below which a corpus or a model may not fit."""


def find_folders() -> Iterator[Finding]:
    """Yield the corpus cache, the Hub's folder, and the one for what is temporary."""
    yield find_cache()
    yield find_hub()
    yield find_folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written")


def find_cache() -> Finding:
    """Look at the folder of built corpora."""
    from limbeck.core.paths import MANIFEST, default_cache_dir

    cache = default_cache_dir()
    named = "LIMBECK_CACHE" in os.environ
    finding = find_folder("corpus cache", cache, "set LIMBECK_CACHE to a folder that can be written")
    if not cache.is_dir():
        return finding
    files = [path for path in cache.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    corpora = sum(path.name == MANIFEST for path in files)
    text = f"{finding.text}; {gigabytes(size)} in {corpora} finished folders"
    facts = {**finding.facts, "bytes": size, "finished": corpora, "from_environment": named}
    return replace(finding, text=text, facts=facts)


def find_hub() -> Finding:
    """Look at the folder that models of the Hub are fetched into."""
    from huggingface_hub import constants

    finding = find_folder("Hugging Face home", Path(constants.HF_HOME), "set HF_HOME to a folder that can be written")
    text = f"{finding.text}; offline: nothing is fetched" if constants.HF_HUB_OFFLINE else finding.text
    status: Status = "warning" if finding.status == "failed" else finding.status  # Models in folders do without it.
    return replace(finding, status=status, text=text, facts={**finding.facts, "offline": constants.HF_HUB_OFFLINE})


def find_folder(name: str, folder: Path, way_out: str) -> Finding:
    """Check that a folder can be written, or made, and that there is room in it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    facts: dict[str, object] = {"path": str(folder), "exists": folder.is_dir(), "writable": _writable(existing)}
    if not facts["writable"]:
        return Finding(name, "failed", f"{folder} cannot be written", way_out, facts)
    free = shutil.disk_usage(existing).free
    text = f"{folder}{'' if folder.is_dir() else ' (made when it is needed)'}, {gigabytes(free)} free"
    facts["free_bytes"] = free
    if free < LITTLE_ROOM:
        return Finding(name, "warning", text, "make room, or choose a folder on another disk", facts)
    return Finding(name, "ok", text, facts=facts)


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:  # Also where a file is in the way.
        return False
