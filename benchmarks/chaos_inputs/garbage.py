"""What bad inputs are made of: strings, numbers, bytes and nested data that nobody means."""

from __future__ import annotations

from random import Random
from typing import Any

CONTROLS = "\0\x01\x07\x08\x1b\x7f\x85\u200b\u202e\u2028\ufeff"
HUGE = 10**30
HEX = int("0x" + "f" * 5000, 16)
"""More digits than Python writes out."""


def word(random: Random, least: int = 3, most: int = 12) -> str:
    """A word of small letters that is nobody's key."""
    return "q" + "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(least, most)))


def control_text(random: Random) -> str:
    """Text with characters that change what a terminal shows."""
    return f"{word(random)}{random.choice(CONTROLS)}[31m\n{random.choice(CONTROLS)}{word(random)}"


def markup_text(random: Random) -> str:
    """Text that a terminal library takes for its own markup."""
    return random.choice(["[bold]", "[/]", r"\[", "[red]x[/blue]", r"\\[/bold]", "[link=file:///etc]"]) + word(random)


def long_text(random: Random) -> str:
    """A megabyte of one word."""
    return word(random, 8, 8) * 120_000


def outside(random: Random) -> str:
    """A path that leaves the folder that it starts from."""
    name = word(random)
    return random.choice(
        [f"../{name}", f"../../{name}", f"x/../../{name}", f"./../{name}", f"/tmp/{name}/{name}", f"a/../../../{name}"]
    )


def no_number(random: Random) -> Any:
    """A value where a number is asked for, and none that is one."""
    return random.choice([
        word(random), "", " ", [], {}, [1, 2], {"a": 1}, None, True, False, "1e", "0x", "--1", "1,5", "ten",
        control_text(random), markup_text(random), [[]], "NaN", "inf", "∞", "½",
    ])  # fmt: skip


def no_finite_number(random: Random) -> Any:
    """An infinite number, or none."""
    return random.choice([float("nan"), float("inf"), float("-inf")])


def no_text(random: Random) -> Any:
    """A value where text is asked for, and none."""
    return random.choice([1, 0, -3, 1.5, True, [], {}, [word(random)], {word(random): 1}, [None], HUGE])


def no_mapping(random: Random) -> Any:
    """A value where a mapping is asked for, and none."""
    return random.choice([1, True, 0.5, word(random), "", [], [word(random)], [[1]], control_text(random), -1])


def noise(random: Random, least: int = 1, most: int = 3000) -> bytes:
    """Random bytes."""
    return random.randbytes(random.randint(least, most))


def nested_json(random: Random, depth: int) -> str:
    """Lists or objects in each other, closed or not."""
    opening, closing = random.choice([("[", "]"), ('{"a":', "}")])
    return opening * depth + ("1" + closing * depth if random.random() < 0.7 else "")


def damaged(random: Random, content: bytes) -> bytes:
    """Content with a few bytes changed, cut off or put in, and never the same."""
    changed = bytearray(content)
    way = random.randrange(3)
    if way == 0:
        del changed[random.randrange(max(1, len(changed) * 9 // 10)) :]
    elif way == 1:
        for _ in range(random.randint(1, 8)):
            changed[random.randrange(len(changed))] ^= random.randint(1, 255)
    else:
        at = random.randrange(len(changed))
        changed[at:at] = noise(random, 1, 40)
    return bytes(changed) if bytes(changed) != content else content + b"\xff"


def put(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set a value in nested data by a dotted path; returns the data."""
    node: Any = data
    *parents, last = path.split(".")
    for key in parents:
        if isinstance(node, list):
            node = node[int(key)]
            continue
        if not isinstance(node.get(key), dict | list):
            node[key] = {}
        node = node[key]
    node[int(last) if isinstance(node, list) else last] = value
    return data


def shown(value: Any) -> str:
    """A value in a few words, whatever it is."""
    try:
        return repr(value)[:60]
    except ValueError:  # Numbers with more digits than Python writes.
        return f"a {type(value).__name__} with a number of thousands of digits"
