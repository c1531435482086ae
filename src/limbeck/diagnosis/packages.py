"""The packages that limbeck needs, and those that single commands need: read from what the installer was told.

Nothing else is imported here: a damaged torch has to be found, not met.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from limbeck.diagnosis.finding import Finding
from limbeck.version import __version__

NAME = "limbeck"
USES = {
    "quickstart": "`limbeck quickstart`",
    "export": "`limbeck export --format` onnx, onnx-int8 and sentence-transformers",
    "tensorboard": "training with `report_to: tensorboard`",
    "triton": "the fastest `relation_kl` on a GPU",
}
"""The extras that users choose, and what needs each; the others are for those who work on limbeck itself."""


def find() -> Iterator[Finding]:
    """Yield Python, limbeck, what it needs, and its extras."""
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
            text = f"for {use}: what is installed of limbeck does not know this extra"
            yield Finding(f"extra {extra}", "warning", text, f'pip install --upgrade "limbeck[{extra}]"')


def find_python() -> Finding:
    """Check the version of Python."""
    version = platform.python_version()
    try:
        wanted = metadata.metadata(NAME)["Requires-Python"]
    except metadata.PackageNotFoundError:
        wanted = None
    fits = not wanted or SpecifierSet(wanted).contains(version, prereleases=True)
    facts = {"version": version, "platform": platform.platform()}
    text = f"Python {version} on {platform.platform()}"
    if fits:
        return Finding("python", "ok", text, facts=facts)
    return Finding("python", "failed", f"{text}; limbeck needs {wanted}", f"install Python {wanted}", facts)


def find_limbeck() -> Finding:
    """Compare the limbeck that runs with the one that is installed."""
    place = str(Path(__file__).parents[1])
    text, facts = f"limbeck {__version__} in {place}", {"version": __version__, "place": place}
    try:
        installed = metadata.version(NAME)
    except metadata.PackageNotFoundError:
        text += " is not installed, only imported: what it needs is not known"
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
            yield Finding(requirement.name, "failed", problem, f'pip install "{_plain(requirement)}"')
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Finding("needed packages", "ok", text, facts=versions)


def find_extra(extra: str, use: str, requirements: list[Requirement]) -> Finding:
    """Check the packages of an extra; one that is only partly there is absent."""
    mine = [requirement for requirement in requirements if _asked_for(requirement, extra)]
    mine = [requirement for requirement in mine if not _asked_for(requirement, "")]
    problems = [problem for requirement in mine if (problem := problem_of(requirement)) is not None]
    facts = {requirement.name: installed_version(requirement.name) for requirement in mine}
    name = f"extra {extra}"
    if not mine:
        return Finding(name, "absent", f"not for this platform; for {use}", facts=facts)
    if problems:
        text = f"for {use}: {'; '.join(problems)}"
        return Finding(name, "absent", text, f'pip install "limbeck[{extra}]"', facts)
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


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"
