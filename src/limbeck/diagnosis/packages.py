"""Checks of Python, limbeck, and the packages that it needs, by the requirements of the installed distribution.

An *extra* is an optional set of packages: `pip install "limbeck[export]"` installs the extra `export`. A *finding* is
one line of the report of `limbeck doctor`, with a status and, where something is wrong, a way out.

Of the packages that limbeck needs, this file and its imports use `packaging` alone: the check has to work where others
are missing or damaged.
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
"""Names of the export formats that need packages of the extra `export`."""
USES = {
    "quickstart": "`limbeck quickstart`",
    "export": f"`limbeck export --format` {enumerate_words(_FORMATS_WITH_PACKAGES, 'and')}",
    "tensorboard": "training with `report_to: tensorboard`",
    "triton": "the fastest `relation_kl` on a GPU",
    "mteb": "`limbeck evaluate --tasks mteb:NAME`",
}
"""The extras that are checked, with their uses. Other extras, such as that for tests, are for developers of limbeck."""


def find_packages() -> Iterator[Finding]:
    """Yield the findings on Python, limbeck, the packages that it needs, and its extras."""
    yield find_python()
    yield find_limbeck()
    # The metadata of the installed limbeck list its requirements: those of every installation, and those of extras with
    # a marker, as in `onnx>=1.17; extra == "export"`.
    try:
        requirements = [Requirement(text) for text in metadata.requires(_LIMBECK) or ()]
        defined_extras = metadata.metadata(_LIMBECK).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        # limbeck is imported from a folder and not installed, which `find_limbeck` reports.
        return
    yield from find_needed(requirements)
    for extra, use in USES.items():
        if extra in defined_extras:
            yield find_extra(extra, use, requirements)
        else:
            # The metadata are those of an older limbeck, which did not have the extra.
            text = f"for {use}: the installed limbeck does not define this extra"
            yield Finding(f"extra {extra}", "warning", text, way_out=f'pip install --upgrade "limbeck[{extra}]"')


def find_python() -> Finding:
    """Check the version of Python against the versions that the installed limbeck supports."""
    version = platform.python_version()
    # Such as `>=3.11`; None where limbeck is not installed, so that any version passes.
    needed = None
    with suppress(metadata.PackageNotFoundError):
        needed = metadata.metadata(_LIMBECK)["Requires-Python"]
    facts = {"version": version, "platform": platform.platform()}
    text = f"Python {version} on {platform.platform()}"
    is_supported = not needed or SpecifierSet(needed).contains(version, prereleases=True)
    if is_supported:
        return Finding("python", "ok", text, facts=facts)
    return Finding(
        "python", "failed", f"{text}; limbeck needs {needed}", way_out=f"install Python {needed}", facts=facts
    )


def find_limbeck() -> Finding:
    """Compare the version of the running limbeck with that of the installed one.

    They differ, for example, where a checkout was updated after it had been installed in editable mode: then the
    requirements that are checked are old.
    """
    place = str(Path(__file__).parents[1])
    text = f"limbeck {__version__} in {place}"
    facts = {"version": __version__, "place": place}
    try:
        installed_version = metadata.version(_LIMBECK)
    except metadata.PackageNotFoundError:
        text += " is not installed, only imported: its requirements are unknown"
        return Finding(_LIMBECK, "warning", text, way_out="pip install limbeck", facts=facts)
    if installed_version != __version__:
        text += f", installed as {installed_version}"
        return Finding(_LIMBECK, "warning", text, way_out="install it again, with pip", facts=facts)
    return Finding(_LIMBECK, "ok", text, facts=facts)


def find_needed(requirements: list[Requirement]) -> Iterator[Finding]:
    """Check the packages that every installation of limbeck needs.

    Args:
        requirements: All requirements of limbeck, those of extras too.

    Yields:
        A failure for each package that is missing or has a wrong version. Then, in any case, one finding that lists the
        others: its status is "ok", since it is about these alone.
    """
    version_by_package = {}
    for requirement in requirements:
        if not _is_always_needed(requirement):
            continue
        problem = problem_of(requirement)
        if problem is None:
            version_by_package[requirement.name] = metadata.version(requirement.name)
        else:
            way_out = f'pip install "{requirement.name}{requirement.specifier}"'
            yield Finding(requirement.name, "failed", problem, way_out=way_out)
    text = ", ".join(f"{package} {version}" for package, version in version_by_package.items())
    yield Finding("needed packages", "ok", text, facts=version_by_package)


def find_extra(extra: str, use: str, requirements: list[Requirement]) -> Finding:
    """Check the packages of an extra.

    Args:
        extra: Name of the extra.
        use: The use of the extra, for the text.
        requirements: All requirements of limbeck, those of other extras too.

    Returns:
        A finding that is "ok" if all packages of the extra are installed, else "absent", since an extra is optional.
    """
    problems = []
    version_by_package = {}
    for requirement in requirements:
        # A requirement of every installation is met with each extra too, but belongs to none.
        if _is_always_needed(requirement) or not _is_needed_with(extra, requirement):
            continue
        version_by_package[requirement.name] = _installed_version(requirement.name)
        problem = problem_of(requirement)
        if problem is not None:
            problems.append(problem)

    name = f"extra {extra}"
    # On another platform an extra may have no packages: Triton, for example, is for Linux alone.
    if not version_by_package:
        return Finding(name, "absent", f"not for this platform; for {use}")
    if problems:
        text = f"for {use}: {'; '.join(problems)}"
        return Finding(name, "absent", text, way_out=f'pip install "limbeck[{extra}]"', facts=version_by_package)
    text = ", ".join(f"{package} {version}" for package, version in version_by_package.items())
    return Finding(name, "ok", text, facts=version_by_package)


def problem_of(requirement: Requirement) -> str | None:
    """Return the reason why the installed packages do not meet a requirement; None if they do."""
    version = _installed_version(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version} does not fit {requirement.specifier}"


def _installed_version(package: str) -> str | None:
    """Return the version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _is_always_needed(requirement: Requirement) -> bool:
    """Return whether an installation without any extra has this requirement, on this platform."""
    # No extra has the empty name.
    return _is_needed_with("", requirement)


def _is_needed_with(extra: str, requirement: Requirement) -> bool:
    """Return whether an installation with this extra alone has this requirement, on this platform.

    The marker of a requirement is a condition on the extra and the platform: `extra == "triton" and sys_platform ==
    "linux"`.
    """
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
