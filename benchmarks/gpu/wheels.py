"""Packages that this Python lacks, from a folder of wheels: no network, and nothing that is there is replaced."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path


def install_missing(folder: Path, target: Path) -> list[str]:
    """Install those wheels of a folder whose package is not here, without what they ask for.

    Returns:
        Their names.

    Raises:
        SystemExit: if pip cannot install one.
    """
    here = {_plain(found.metadata["Name"]) for found in metadata.distributions()}
    wheels = [wheel for wheel in sorted(folder.glob("*.whl")) if _plain(wheel.name.split("-")[0]) not in here]
    if wheels:
        options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--find-links", folder, "--target", target]
        options += ["--ignore-requires-python"]  # bertdistiller takes Python up to 3.12, and no 3.12.1.
        done = subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels])
        if done.returncode:
            raise SystemExit(f"pip could not install the wheels of '{folder}'; see its message above")
    return [wheel.name.split("-")[0] for wheel in wheels]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
