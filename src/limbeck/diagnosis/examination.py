"""The examination of `limbeck doctor`: its parts, and the order in which they are examined.

Each part is a function that yields *findings*, the lines of the report. This module imports none of the packages that
limbeck needs: a missing or damaged torch has to become a finding, not an error at the start. The module of a part is
imported when its turn comes.
"""

from collections.abc import Callable, Iterator
from pkgutil import resolve_name

from limbeck.diagnosis.findings import Finding, worst
from limbeck.errors import describe_error

PARTS = {
    "packages": "limbeck.diagnosis.packages:find_packages",
    "devices": "limbeck.diagnosis.devices:find_devices",
    "kernels": "limbeck.diagnosis.kernel_choices:find_kernels",
    "folders": "limbeck.diagnosis.folders:find_folders",
    "self-test": "limbeck.diagnosis.self_test:find_self_test",
}
"""The parts in their order, each with the module and the function that yields its findings."""
_VECTORS = "limbeck.diagnosis.sentence_vectors:find_vectors"
"""The part that is examined last, where the user names a teacher."""


def examine(begin: Callable[[str], None], teacher: str | None = None) -> Iterator[tuple[str, Finding]]:
    """Examine all parts.

    If a package that limbeck needs is missing, the examination ends with the packages. An error within a part is a
    finding of that part, and the examination goes on.

    Args:
        begin: Is called with the name of each part before it is examined.
        teacher: A model whose sentence vectors are examined last; see `limbeck.diagnosis.sentence_vectors`.

    Yields:
        The name of a part, and one of its findings.
    """
    for part, place in PARTS.items():
        begin(part)
        findings = []
        for finding in _findings_of(place):
            findings.append(finding)
            yield part, finding
        # The other parts import these packages, and would fail with the same cause.
        if part == "packages" and worst(findings) == "failed":
            return
    if teacher is not None:
        begin("teacher")
        for finding in _findings_of(_VECTORS, teacher):
            yield "teacher", finding


def _findings_of(place: str, *arguments: str) -> Iterator[Finding]:
    """Yield the findings of a part; if it fails with an error, this is its last finding.

    Args:
        place: The module and the function of the part, `MODULE:FUNCTION`.
        arguments: Arguments of the function.
    """
    try:
        # The import of the module may fail too, for example where torch is damaged.
        find = resolve_name(place)
        yield from find(*arguments)
    except Exception as error:
        yield Finding(
            name="failure",
            status="failed",
            text=describe_error(error),
            way_out="if the lines above do not explain it, report it together with all of them",
        )
