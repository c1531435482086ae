"""The whole examination: one part after the other, each imported when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from limbeck.diagnosis.finding import Finding, worst

PARTS = {
    "packages": "limbeck.diagnosis.packages",
    "devices": "limbeck.diagnosis.devices",
    "kernels": "limbeck.diagnosis.kernel_choices",
    "folders": "limbeck.diagnosis.folders",
    "self-test": "limbeck.diagnosis.self_test",
}
"""Name to module, whose `find` yields findings. Where torch cannot be imported, that is a finding too."""


def examine(begin: Callable[[str], None]) -> Iterator[tuple[str, Finding]]:
    """Yield what is found, with the part that it belongs to.

    Without the packages that limbeck needs nothing else is looked at. A part that fails as a whole is a finding.

    Args:
        begin: Told the name of each part before it is looked at.
    """
    for part, module in PARTS.items():
        begin(part)
        findings = []
        for finding in _find(module):
            findings.append(finding)
            yield part, finding
        if part == "packages" and worst(findings) == "failed":
            return


def _find(module: str) -> Iterator[Finding]:
    try:
        yield from import_module(module).find()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        yield Finding("failure", "failed", text, "if the lines above do not explain it, report it with all of them")
