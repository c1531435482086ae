"""The examination of `limbeck doctor`: its parts, and the order in which they are looked at.

Nothing is imported here that limbeck needs besides `packaging`: a damaged torch has to be found, not met. The modules
of the parts are imported when they are reached.
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
"""By the name of a part the module and the function that yields its findings."""
_VECTORS = "limbeck.diagnosis.sentence_vectors:find_vectors"


def examine(begin: Callable[[str], None], teacher: str | None = None) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of all parts, each with the name of its part.

    Without the packages that limbeck needs nothing else is looked at. A part that fails as a whole is a finding.

    Args:
        begin: Receives the name of each part before it is looked at.
        teacher: A model whose sentence vectors are examined last; see `limbeck.diagnosis.sentence_vectors`.
    """
    for part, place in PARTS.items():
        begin(part)
        findings = []
        for finding in _findings_of(place):
            findings.append(finding)
            yield part, finding
        if part == "packages" and worst(findings) == "failed":
            return
    if teacher is not None:
        begin("teacher")
        for finding in _findings_of(_VECTORS, teacher):
            yield "teacher", finding


def _findings_of(place: str, *arguments: str) -> Iterator[Finding]:
    """Yield the findings of a part; an error is the last finding, that of an import too."""
    try:
        yield from resolve_name(place)(*arguments)
    except Exception as error:
        text = describe_error(error)
        way_out = "if the lines above do not explain it, report it together with all of them"
        yield Finding("failure", "failed", text, way_out)
