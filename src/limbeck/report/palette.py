"""Colours of a report in both themes, with the contrast that makes them readable."""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f4f6f8",
    "ink": "#16191d",
    "muted": "#545c66",
    "rule": "#c8ced6",
    "link": "#0b57a4",
    "warning": "#8a3b00",
    "heat": "#0a3f7f",
    "series-1": "#0b5cad",
    "series-2": "#b8460e",
    "series-3": "#00735c",
    "series-4": "#8e3b8a",
    "series-5": "#775900",
    "series-6": "#4d5763",
}
DARK = {
    "paper": "#14171c",
    "panel": "#1d222a",
    "ink": "#e8ebef",
    "muted": "#aab3be",
    "rule": "#3b434e",
    "link": "#8cc2ff",
    "warning": "#ffb27a",
    "heat": "#a8d1ff",
    "series-1": "#6fb3ff",
    "series-2": "#ff9d66",
    "series-3": "#45cfa3",
    "series-4": "#e59be0",
    "series-5": "#e3c14d",
    "series-6": "#b4bdc9",
}
"""After Okabe and Ito's colours for the colour-blind, darkened and lightened until they stand out from the paper."""
THEMES = {"light": LIGHT, "dark": DARK}
SERIES = 6
"""Kinds of lines that are told apart: each has a colour, a marker and a dash of its own."""
HEAT_LEVELS = 20
_BLACK, _WHITE = "#000000", "#ffffff"


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, 1 to 21.

    Args:
        first: As `#rrggbb`.
        second: The same.

    Source:
        Web Content Accessibility Guidelines 2.2, "contrast ratio": (L1 + 0.05) / (L2 + 0.05).
    """
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def heat_colour(theme: dict[str, str], level: int) -> str:
    """Return the colour of a cell of a heat map: paper at level 0, the heat colour at `HEAT_LEVELS`."""
    share = level / HEAT_LEVELS
    channels = zip(_channels(theme["paper"]), _channels(theme["heat"]), strict=True)
    return "#" + "".join(f"{round(paper + share * (heat - paper)):02x}" for paper, heat in channels)


def ink_on_heat(theme: dict[str, str], level: int) -> str:
    """Return black or white, whichever reads better on a cell."""
    return max(_BLACK, _WHITE, key=lambda ink: contrast(ink, heat_colour(theme, level)))


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
