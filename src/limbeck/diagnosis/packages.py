"""Checks of Python, limbeck, and the packages that it needs, by the requirements that its installer had.

Nothing is imported here that limbeck needs besides `packaging`.
"""

import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from limbeck.core.lists import enumerate_words
from limbeck.diagnosis.findings import Finding
from limbeck.export.formats import OWN_FORMATS
from limbeck.version import __version__

_LIMBECK = "limbeck"
_FORMATS_WITH_PACKAGES = [each.name for each in OWN_FORMATS if each.needs]
USES = {
    "quickstart": "`limbeck quickstart`",
    "export": f"`limbeck export --format` {enumerate_words(_FORMATS_WITH_PACKAGES, 'and')}",
    "tensorboard": "training with `report_to: tensorboard`",
    "triton": "the fastest `relation_kl` on a GPU",
}
"""The extras that users choose, and what needs each; the others are for those who work on limbeck itself."""


def find_packages() -> Iterator[Finding]:
    """Yield Python, limbeck, its dependencies, and its extras."""
    yield find_python()
    yield find_limbeck()
    try:
        requirements = [Requirement(text) for text in metadata.requires(_LIMBECK) or ()]
        extras = metadata.metadata(_LIMBECK).get_all("Provides-Extra") or []
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
    version = platform.python_version()
    needed = None
    with suppress(metadata.PackageNotFoundError):
        needed = metadata.metadata(_LIMBECK)["Requires-Python"]
    facts = {"version": version, "platform": platform.platform()}
    text = f"Python {version} on {platform.platform()}"
    if not needed or SpecifierSet(needed).contains(version, prereleases=True):
        return Finding("python", "ok", text, facts=facts)
    return Finding("python", "failed", f"{text}; limbeck needs {needed}", f"install Python {needed}", facts)


def find_limbeck() -> Finding:
    """Compare the running limbeck with the installed one."""
    place = str(Path(__file__).parents[1])
    text = f"limbeck {__version__} in {place}"
    facts = {"version": __version__, "place": place}
    try:
        installed = metadata.version(_LIMBECK)
    except metadata.PackageNotFoundError:
        text += " is not installed, only imported: its requirements are unknown"
        return Finding(_LIMBECK, "warning", text, "pip install limbeck", facts)
    if installed != __version__:
        return Finding(_LIMBECK, "warning", f"{text}, installed as {installed}", "install it again, with pip", facts)
    return Finding(_LIMBECK, "ok", text, facts=facts)


def find_needed(requirements: list[Requirement]) -> Iterator[Finding]:
    """Yield a failure for each package that every command needs and that is missing or unfit, then the others."""
    versions = {}
    for requirement in requirements:
        if not _belongs_to(requirement, ""):
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
    """Check the packages of an extra; an extra of which a package is missing is absent."""
    problems = []
    versions = {}
    for requirement in requirements:
        if not _belongs_to(requirement, extra) or _belongs_to(requirement, ""):
            continue
        versions[requirement.name] = _installed_version(requirement.name)
        problem = problem_of(requirement)
        if problem is not None:
            problems.append(problem)

    name = f"extra {extra}"
    if not versions:
        return Finding(name, "absent", f"not for this platform; for {use}")
    if problems:
        text = f"for {use}: {'; '.join(problems)}"
        return Finding(name, "absent", text, f'pip install "limbeck[{extra}]"', versions)
    text = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Finding(name, "ok", text, facts=versions)


def problem_of(requirement: Requirement) -> str | None:
    """Return why a requirement is not met, or None."""
    version = _installed_version(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version} does not fit {requirement.specifier}"


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    """Return whether a requirement belongs to an extra, or to every installation (`""`), on this platform."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
