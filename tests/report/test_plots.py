"""Every kind of plot, in a page and as a file: it shows the numbers that were declared, and text stays text."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from limbeck.core.blocks import Figure, Table
from limbeck.errors import OutputError
from limbeck.report.figures import heat_figure
from limbeck.report.output_files import PICTURE_SUFFIXES
from limbeck.report.pictures import drawn, picture_address, svg_of, write_figure
from limbeck.report.plots import (
    SERIES,
    Heat,
    Lines,
    NamedPoint,
    NamedPoints,
    Panels,
    Series,
    ValueRow,
    ValueRows,
    label_text,
    spans_widely,
)
from limbeck.report.rendering import read_themes

NAMES = [f"layer number {n}" for n in range(64)]


def heat(rows, columns, **more):
    values = [[(r * columns + c) / (rows * columns) for c in range(columns)] for r in range(rows)]
    values[0][0] = None
    return Heat(values, NAMES[:rows], NAMES[:columns], "student layer", "teacher layer", 0.0, 1.0, "CKA", **more)


DECAY = [(10.0 * step, 3 * 0.95**step + 0.01) for step in range(1, 90)]
FRONT = [
    Series("Pareto front", [(0.1, 1.0), (0.2, 0.5), (0.4, 0.3)], "steps", names=["3x384", "4x384", "6x384"]),
    Series("shape", [(0.3, 0.9), (0.35, 0.88)], "points", names=["2x312", "5x312"]),
]
PLOTS = {
    "few points": Lines([Series("a", [(1, 10), (2, 20), (4, 40)])], "x", "y"),
    "one point": Lines([Series("a", [(1, 0)])], "generation", "y", x_is_whole=True),
    "no point": Lines([Series("a", [])], "x", "y"),
    "all styles": Lines([Series(f"a method, mapping {n}", [(0, n), (1, n + 1)]) for n in range(SERIES)], "x", "y"),
    "band": Lines(
        [Series("loss", DECAY, band=[(y - 0.005, y * 1.5) for _, y in DECAY]), Series("held out", DECAY[::9])],
        "step", "mean over the steps since the last log, without padding and so on", y_is_log=True,
    ),
    "front": Lines(FRONT, "latency", "loss", limit=0.5),
    "long labels": Lines([Series(f"a method with a long name on 4x384, map {n}", DECAY) for n in range(3)], "x", "y"),
    "many steps": Lines([Series("a", [(0, 1.0), (12_000_000, 2.0)])], "step", "y", x_is_whole=True),
    "many decades": Lines([Series("a", [(1, 1e-7), (2, 1.0)])], "step", "y", y_is_log=True),
    "rows": ValueRows([ValueRow(f"hidden_states, uniform_last on {n}x384", 80 + n / 9, (79.5, 82)) for n in range(30)],
                      "accuracy, percent", reference=86.4),
    "two rows": ValueRows([ValueRow("teacher", 0.9), ValueRow("W" * 60, 0.8, (0.7, 0.85))], "MRR@10"),
    "named points": NamedPoints(
        [NamedPoint(f"student {n}x384", 20 + n * n / 7, 80 + n / 9, (79.8 + n / 9, 80.3 + n / 9)) for n in range(12)],
        "latency, ms", "accuracy", front=[(20, 80), (20 + 121 / 7, 80 + 11 / 9)],
    ),
    "points in one place": NamedPoints([NamedPoint(f"model {n}", 20 + n % 3, 80) for n in range(24)], "x", "y"),
    "small heat": heat(1, 1),
    "numbered heat": heat(4, 14),
    "levels": Heat([[0.5] * 25] * 25, [str(n) for n in range(25)], [str(n) for n in range(25)], "r", "c", 0, 1, "CKA"),
    "heat": heat(13, 25, upwards=True),
    "large heat": heat(64, 64),
}  # fmt: skip
PLOTS["panels"] = Panels([("fitness", PLOTS["front"]), ("a map", heat(5, 5)), ("a line", PLOTS["band"])], 2)
PLOTS["small panels"] = Panels(
    [(f"a term of the loss with a long name, {n}", PLOTS["many steps"]) for n in range(4)], 2, 0.65
)
HOSTILE = "</svg></title><script>alert('x')</script>\u202e\x00$x_1$ {{ 7*7 }} &amp; 中文"
every_plot = pytest.mark.parametrize("name", PLOTS)


def figure(drawing, title="A title", caption="A caption."):
    return Figure("name", title, caption, "Words: 1.", drawing, Table("c", ("",), ()))


def axes_of(name):
    with drawn(PLOTS[name]) as sheet:
        sheet.draw_without_rendering()
    return sheet.axes


@every_plot
def test_all_text_is_inside(name):
    with drawn(PLOTS[name], title="A title of a file", caption="A caption that is long. " * 10) as sheet:
        sheet.draw_without_rendering()
        room = sheet.bbox.padded(1)
        texts = [text for text in sheet.findobj(matplotlib.text.Text) if text.get_text() and text.get_visible()]
        # Ticks beyond the limits of their axis are not drawn.
        shown = [text for axes in sheet.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
        boxes = {text.get_text(): text.get_window_extent() for text in texts if text in shown or text in sheet.texts}
    assert boxes
    for text, box in boxes.items():
        if text:
            assert room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1, text


@every_plot
def test_labels_do_not_touch(name):
    with drawn(PLOTS[name]) as sheet:
        sheet.draw_without_rendering()
        texts = []
        for axes in sheet.axes:
            # Ticks beyond the limits of an axis have labels too, which are not drawn.
            for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
                low, high = sorted(limits)
                ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
                texts += [label for place, label in ticks if low <= place <= high]
                texts.append(axis.label)
            texts += axes.texts
            if axes.get_legend() is not None:
                texts += axes.get_legend().get_texts()
        for part in [sheet, *sheet.subfigs]:
            texts += part.texts + ([] if part._suptitle is None else [part._suptitle])
        boxes = [
            (text.get_text(), matplotlib.text.Text.get_window_extent(text)) for text in set(texts) if text.get_text()
        ]
    assert boxes
    touching = [(a, b) for (a, box), (b, other) in combinations(boxes, 2) if box.overlaps(other)]
    assert touching == []


def test_names_stand_beside_their_points_and_are_all_there():
    [axes] = axes_of("named points")
    names = {text.get_text() for text in axes.texts if text.get_text()}
    assert names == {point.name for point in PLOTS["named points"].points}
    [axes] = axes_of("rows")
    assert len({label.get_text() for label in axes.get_yticklabels()}) == 30


def test_a_name_beside_a_point_on_a_line_of_the_grid_leaves_the_line_free():
    points = [NamedPoint("low", 1.0, 0.36), NamedPoint("on a line", 1.5, 0.42), NamedPoint("high", 2.0, 0.48)]
    with drawn(NamedPoints(points, "x", "y")) as sheet:
        sheet.draw_without_rendering()
    [axes] = sheet.axes
    assert 0.42 in [pytest.approx(tick) for tick in axes.get_yticks()]
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    heights = [line.get_window_extent().y0 for line in axes.yaxis.get_gridlines()]
    for point in points:
        box = boxes[point.name]
        assert not any(box.y0 <= height <= box.y1 for height in heights)


def test_axes_are_fitted_to_the_values_and_their_intervals():
    [axes] = axes_of("rows")
    low, high = axes.get_xlim()
    assert 75 < low < 79.5 and 86.4 < high < 90, "from the lowest interval to the reference"
    bars = [line.get_xdata() for line in axes.get_lines() if len(line.get_xdata()) == 2]
    assert sum(tuple(bar) == (79.5, 82) for bar in bars) == 30
    [axes] = axes_of("named points")
    low, high = axes.get_ylim()
    assert 79 < low < 79.8 and 80.3 + 11 / 9 < high < 82.5


@pytest.mark.parametrize("name", ["few points", "band", "front"])
def test_lines_are_the_points_that_were_declared(name):
    [axes] = axes_of(name)
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    for series in PLOTS[name].series:
        assert lines[series.label] == [list(map(float, point)) for point in series.points]
    bands = [series.band for series in PLOTS[name].series if series.band]
    assert [area.get_paths()[0].vertices[:, 1].max() for area in axes.collections] == [
        max(high for _, high in band) for band in bands
    ]


def test_cells_are_the_matrix_with_numbers_where_there_is_room():
    axes, _ = axes_of("heat")
    [image] = axes.get_images()
    assert image.get_array().shape == (13, 25) and np.ma.getmaskarray(image.get_array()).sum() == 1
    assert not axes.texts, "25 columns leave no room"
    values = [[0.25, 0.5], [None, 1.0]]
    with drawn(Heat(values, ["0", "1"], ["0", "1"], "r", "c", 0.0, 1.0, "CKA")) as sheet:
        texts = [(text.get_text(), text.get_color()) for text in sheet.axes[0].texts]
    assert texts == [("0.25", "black"), ("0.5", "black"), ("1", "white")]
    for values in ([[0.5], [0.1, 0.2, 0.3]], [[0.5, 0.1]], [], [["a", 0.5], [0.1, 0.2]]):
        damaged = Heat(values, ["0", "1"], ["0", "1"], "r", "c", 0.0, 1.0, "CKA")
        with pytest.raises(ValueError):
            heat_figure("A map", damaged, "Words.")


def test_series_differ_by_more_than_colour():
    lines = axes_of("all styles")[0].get_lines()
    looks = [(line.get_color(), line.get_marker(), str(line._dash_pattern)) for line in lines]
    assert all(len(set(look)) == SERIES for look in zip(*looks, strict=True))


@pytest.mark.parametrize(
    ("plot", "labels"),
    [
        (Lines([Series("a", [(0, 1), (400_000, 2)])], "step", "y", x_is_whole=True), "0 100,000 200,000 300,000"),
        (Lines([Series("a", [(1, 0.001), (2, 100)])], "x", "y", y_is_log=True), "0.001 0.01 0.1 1 10 100"),
    ],
)
def test_ticks_are_numbers_that_can_be_read(plot, labels):
    with drawn(plot) as sheet:
        sheet.draw_without_rendering()
        [axes] = sheet.axes
        axis = axes.yaxis if plot.y_is_log else axes.xaxis
        texts = [label.get_text() for label in axis.get_ticklabels()]
    assert set(labels.split()) <= set(texts) and not any("$" in text for text in texts)


@every_plot
def test_a_page_has_the_figure_as_a_picture_that_is_the_same_again(name):
    svg = svg_of(figure(PLOTS[name]))
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and b"<text" in svg, "text stays text"
    assert svg == svg_of(figure(PLOTS[name])) and len(svg) < 150_000
    address = picture_address(figure(PLOTS[name]))
    assert re.fullmatch(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", address)


def test_a_drawing_is_the_same_whatever_else_matplotlib_is_used_for():
    names = ("few points", "front", "heat")
    pictures = [svg_of(figure(PLOTS[name])) for name in names]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda name: svg_of(figure(PLOTS[name])), names)) == pictures
    with matplotlib.rc_context({"svg.fonttype": "path", "axes.facecolor": "black", "axes.grid": True, "font.size": 30}):
        assert svg_of(figure(PLOTS["few points"])) == pictures[0]
        assert matplotlib.rcParams["font.size"] == 30


@pytest.mark.parametrize("suffix", PICTURE_SUFFIXES)
def test_a_file_is_light_described_and_the_same_again(suffix, tmp_path):
    paths = [tmp_path / "made" / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        write_figure(figure(PLOTS["front"]), path, titled=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    if suffix == ".png":
        with Image.open(paths[0]) as image:
            assert image.text["Title"] == "A title" and image.text["Description"] == "A caption. Words: 1."
            pixels = np.asarray(image.convert("L"))
        assert pixels[0, 0] == 255 and np.median(pixels) == 255 and pixels.min() < 60
    elif suffix == ".svg":
        text = paths[0].read_text()
        ElementTree.fromstring(text)
        assert "A caption. Words: 1." in text and ">Pareto front</text>" in text, "text stays text"
    else:
        assert b"/Title (A title)" in paths[0].read_bytes() and b"CreationDate" not in paths[0].read_bytes()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_figure(figure(PLOTS["few points"]), tmp_path / "file" / "a.png")


def test_text_stays_text_in_every_plot(tmp_path):
    drawings = (
        Lines([Series(HOSTILE, [(0, 1), (1, 2)]), Series("b", [(0, 1)])], HOSTILE, HOSTILE),
        Heat([[0.5]], [HOSTILE], [HOSTILE], HOSTILE, HOSTILE, 0, 1, HOSTILE),
    )
    spoiled = figure(Panels([(HOSTILE, drawing) for drawing in drawings], 2), HOSTILE, HOSTILE)
    svg = svg_of(spoiled).decode()
    assert "<script" not in svg and "\u202e" not in svg and "\x00" not in svg
    ElementTree.fromstring(svg)
    for suffix in PICTURE_SUFFIXES:
        write_figure(spoiled, tmp_path / f"a{suffix}", titled=True)
    ElementTree.parse(tmp_path / "a.svg")


def test_long_names_keep_both_ends():
    name = "hidden_states, uniform_last on 6x384 and more words"
    short = label_text(name, 20)
    head, tail = short.split("…")
    assert name.startswith(head) and name.endswith(tail) and len(short) == 20
    assert label_text("short", 20) == "short"


def test_a_wide_span_of_positive_values_is_drawn_on_a_logarithmic_scale():
    assert spans_widely([0.01, 1]) and not any(spans_widely(values) for values in ([0.5, 1], [-1, 100], []))


def luminance(colour):
    """Relative luminance of a colour as (red, green, blue) from 0 to 1; see WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink, paper):
    darker, lighter = sorted((luminance(ink), luminance(paper)))
    return (lighter + 0.05) / (darker + 0.05)


def in_the_dark(colour):
    """A colour of a picture on a dark page, whose style inverts it and turns its hue by half a circle."""
    red, green, blue = (1 - channel for channel in colour)
    grey = 2 * (0.213 * red + 0.715 * green + 0.072 * blue)
    return tuple(min(1.0, max(0.0, grey - channel)) for channel in (red, green, blue))


def test_colours_can_be_read_in_both_themes():
    rgb = matplotlib.colors.to_rgb
    themes = {name: {role: rgb(colour) for role, colour in theme.items()} for name, theme in read_themes().items()}
    for theme in themes.values():
        for role in ("ink", "muted", "link", "warning"):
            assert min(contrast(theme[role], theme[paper]) for paper in ("paper", "panel")) >= 4.5, role
    with drawn(PLOTS["all styles"]) as sheet:
        colours = [rgb(line.get_color()) for line in sheet.axes[0].get_lines()]
    for colour in colours:
        assert contrast(colour, themes["light"]["paper"]) >= 4.5
        assert contrast(in_the_dark(colour), themes["dark"]["paper"]) >= 3, "of graphics the least is 3"


@pytest.mark.parametrize(("letters", "width"), [(22, 4.2), (23, None)])
def test_a_plot_for_a_phone_needs_room_for_its_legend(letters, width):
    series = [Series(name * letters, [(1, 1.0), (2, 2.0)]) for name in "ab"]
    assert Lines(series, "step", "loss").phone_width == width
