"""Values compared with files that were written once and committed."""

import json
import os
from difflib import unified_diff
from pathlib import Path
from typing import Any

SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = "LIMBECK_UPDATE_GOLDEN"
"""Set by ``pytest --update-golden``; an environment variable also reaches the workers of pytest-xdist."""

LONGEST_DIFF = 80


def check(name: str, value: Any, relative: float = 0.0, absolute: float = 0.0) -> None:
    """Compare a value with the committed file ``snapshots/NAME``, or rewrite it with ``pytest --update-golden``.

    A string is kept as it is, its name with a suffix: ``run.md``. Anything else is kept as JSON with sorted keys, its
    name without one.
    A missing snapshot fails. With ``relative`` or ``absolute`` above 0, numbers may differ by that fraction of the
    larger one or by that amount; everything else must still be equal.
    """
    path = SNAPSHOTS / (name if isinstance(value, str) or name.endswith(".json") else f"{name}.json")
    text = value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return
    assert path.is_file(), f"No snapshot {path.name}: write it with pytest --update-golden, and commit it."
    with path.open(encoding="utf-8", newline="") as file:
        kept = file.read()
    if kept == text:
        return
    if (relative or absolute) and not isinstance(value, str):
        places = differences(json.loads(kept), json.loads(text), (relative, absolute))
        assert not places, f"{path.name} differs:\n" + "\n".join(places[:LONGEST_DIFF])
        return
    lines = list(unified_diff(kept.splitlines(), text.splitlines(), "committed", "now", n=3, lineterm=""))
    more = f"\n({len(lines) - LONGEST_DIFF} more lines)" if len(lines) > LONGEST_DIFF else ""
    raise AssertionError(f"{path.name} differs:\n" + "\n".join(lines[:LONGEST_DIFF]) + more)


def differences(kept: Any, now: Any, tolerance: tuple[float, float], place: str = "") -> list[str]:
    """Return the places where two values read from JSON differ, numbers by more than (relative, absolute) allow."""
    if isinstance(kept, dict) and isinstance(now, dict):
        found = [f"{place}/{key}: only committed" for key in kept if key not in now]
        found += [f"{place}/{key}: only now" for key in now if key not in kept]
        for key in kept:
            if key in now:
                found += differences(kept[key], now[key], tolerance, f"{place}/{key}")
        return found
    if isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        return [line for i in range(len(kept)) for line in differences(kept[i], now[i], tolerance, f"{place}[{i}]")]
    relative, absolute = tolerance
    if _number(kept) and _number(now) and abs(kept - now) <= max(relative * max(abs(kept), abs(now)), absolute):
        return []
    return [] if kept == now and type(kept) is type(now) else [f"{place}: committed {kept!r}, now {now!r}"]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
