"""Every kind of plot, in a page and as a file: it shows the numbers that were declared, and nothing hides anything."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import yaml
from matplotlib.patches import Rectangle
from PIL import Image
from pydantic import TypeAdapter

from limbeck.core.blocks import Figure, Table
from limbeck.errors import OutputError
from limbeck.report import plots
from limbeck.report.plot_drawing import WIDTH, drawn, shortened, svg_of, text_width, write_figure
from limbeck.report.plots import (
    FILE_SUFFIXES,
    SERIES,
    THEMES,
    Axis,
    Bar,
    BarGroup,
    Bars,
    Heat,
    Panels,
    Plot,
    Series,
    show,
)

LinkKind, Links = plots.LinkKind, plots.Links


def heat(rows, columns, name="layer number", **more):
    values = [[(r * columns + c) / (rows * columns) for c in range(columns)] for r in range(rows)]
    values[0][0] = None
    names = [f"{name} {n}".strip() for n in range(max(rows, columns))]
    return Heat(values, names[:rows], names[:columns], "student layer", "teacher layer", 0.0, 1.0, "CKA", **more)


DECLARED = yaml.safe_load(Path(__file__).with_name("plots.yaml").read_text(encoding="utf-8"))
DECAY = [(10.0 * step, 3 * math.exp(-step / 20) + 0.01) for step in range(1, 90)]
PLOTS = {
    **TypeAdapter(dict[str, Plot | Bars | Links]).validate_python(DECLARED["plots"]),
    "logarithmic with a band": Plot(
        [Series("loss", DECAY, band=[(y - 0.05, y * 1.5) for _, y in DECAY]), Series("held-out text", DECAY[::9], 1)],
        Axis("step", whole=True), Axis("mean over the steps since the last log, without padding and so on", log=True),
    ),
    "small heat": heat(1, 1),
    "heat": heat(13, 25, upwards=True),
    "numbered heat": heat(4, 12, name=""),
    "large heat": heat(64, 64),
    "all links": Links(9, 24, [LinkKind("a", [(s, t) for s in range(1, 10) for t in range(1, 25)]), LinkKind("b", [])]),
}  # fmt: skip
PLOTS["panels"] = Panels([("fitness", PLOTS["boxes"]), ("squad", PLOTS["boxes"]), ("a map", heat(5, 5))], 2)
HOSTILE = "</svg></title><script>alert('x')</script>\u202e\x00$x_1$ {{ 7*7 }} &amp; 中文"
every_plot = pytest.mark.parametrize("name", PLOTS)


def figure(drawing, title="A title", caption="A caption."):
    return Figure("name", title, caption, "Words: 1.", drawing, Table("c", ("",), ()))


@cache
def svg_in_page(name):
    return svg_of(figure(PLOTS[name]))


def plot_axes(sheet):
    return [axes for axes in sheet.canvas.axes if axes is not sheet.paper]


def parts_of(drawing):
    return [panel for _, panel in drawing.panels] if isinstance(drawing, Panels) else [drawing]


def cells_of(axes):
    """The level of each cell that is drawn, by row and column."""
    found = {}
    for patch in axes.patches:
        for (left, row), (right, _) in patch.get_path().vertices.reshape(-1, 5, 2)[:, :2].astype(int):
            for column in range(left, right):
                assert (row, column) not in found
                found[row, column] = int(patch.get_label())
    return found


@every_plot
def test_axes_hold_the_numbers_that_were_declared(name):
    drawing = PLOTS[name]
    with drawn(drawing) as sheet:
        pass
    for part, axes in zip(parts_of(drawing), plot_axes(sheet) or [None], strict=True):
        if isinstance(part, Plot):
            lines = {line.get_label(): line for line in axes.get_lines()}
            for series in part.series:
                if series.points:
                    assert lines[series.label].get_xydata().tolist() == [list(map(float, p)) for p in series.points]
            bands = [series for series in part.series if series.band]
            for area, series in zip(axes.collections, bands, strict=True):
                assert area.get_paths()[0].vertices[:, 1].max() == max(high for _, high in series.band)
            assert (axes.get_xlabel(), axes.get_yscale()) == ("", "log" if part.y.log else "linear")
        elif isinstance(part, Bars):
            bars = [bar for group in part.groups for bar in group.bars]
            assert [patch.get_width() for patch in axes.patches] == [bar.value for bar in bars]
            assert axes.get_xlim()[0] <= min(bar.value - (bar.deviation or 0) for bar in bars)
        elif isinstance(part, Heat):
            levels = {
                (r, c): round(20 * v) for r, row in enumerate(part.values) for c, v in enumerate(row) if v is not None
            }
            assert cells_of(axes) == {cell: level for cell, level in levels.items() if level}, "paper is level 0"
        else:
            lines = [patch for patch in sheet.paper.patches if len(patch.get_path().vertices) == 4]
            assert len(lines) == sum(len(kind.pairs) for kind in part.kinds)


@every_plot
def test_all_text_is_inside_and_covers_no_other(name):
    with drawn(PLOTS[name], title="A title of a file", caption="A caption that is long. " * 10) as sheet:
        sheet.canvas.set_dpi(200)
        sheet.canvas.draw_without_rendering()
        boxes = {
            text: text.get_window_extent()
            for axes in sheet.canvas.axes
            for text in [*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()]
            if text.get_text() and (axes.axison or text in axes.texts)
        }
        room = sheet.canvas.bbox
    assert boxes
    for text, box in boxes.items():
        assert room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1, text
    for (one, box), (other, second) in combinations(boxes.items(), 2):
        assert not box.padded(-4).overlaps(second.padded(-4)), (one, other)


@every_plot
def test_a_page_has_the_figure_as_text_and_named_inks_with_titles_on_points_and_bars(name):
    drawing, svg = PLOTS[name], svg_in_page(name)
    root = ElementTree.fromstring(svg)
    assert root.get("viewBox").split()[2] == f"{WIDTH * 2 + 16 if isinstance(drawing, Panels) else WIDTH:.0f}"
    assert root.get("aria-labelledby") == "name-title name-words" and root.get("role") == "img"
    assert [child.text for child in root[:2]] == ["A title", "Words: 1."]
    assert set(re.findall(r"<(\w+)", svg)) <= {"svg", "title", "desc", "g", "path", "circle", "text"}
    assert re.findall(r'id="([^"]*)"', svg) == ["name-title", "name-words"]
    assert "#" not in svg and "url" not in svg and "href" not in svg
    inks = set(re.findall(r"var\(--([\w-]+)\)", svg))
    assert inks <= set(THEMES["dark"]) == set(THEMES["light"]) and "muted" in inks
    texts, titles = {text.text for text in root.iter("text")}, []
    for part in parts_of(drawing):
        if isinstance(part, Plot):
            assert {shortened(part.x.label, WIDTH), shortened(part.y.label, WIDTH - 4)} <= texts
        elif isinstance(part, Bars):
            bars = [(group.title, bar) for group in part.groups for bar in group.bars]
            assert {bar.text for _, bar in bars} <= texts
            titles += [f"{group}, {bar.label}: {bar.text}" for group, bar in bars]
        elif isinstance(part, Heat):
            assert {"student layer", "teacher layer", "1  CKA"} <= texts
        for series in part.series if isinstance(part, Plot) else ():
            if series.mark == "points" or (series.names if series.mark == "steps" else len(series.points) <= 30):
                names = series.names or [series.label] * len(series.points)
                titles += [f"{n}: {show(x)}, {show(y)}" for (x, y), n in zip(series.points, names, strict=True)]
            elif series.points:
                titles.append(series.label)
    marks = (mark.find("title") for mark in root.iter() if mark is not root)
    assert [title.text for title in marks if title is not None] == titles


def test_a_drawing_is_the_same_whatever_else_matplotlib_is_used_for():
    once = {name: svg_in_page(name) for name in PLOTS}
    some = ("few points", "front", "bars", "numbered heat", "links")
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda name: svg_of(figure(PLOTS[name])), some))
    assert again == [once[name] for name in some]
    with matplotlib.rc_context({"svg.fonttype": "path", "axes.facecolor": "black", "axes.grid": True, "font.size": 30}):
        assert svg_of(figure(PLOTS["front"])) == once["front"]
        assert matplotlib.rcParams["font.size"] == 30
    assert max(map(len, once.values())) < 120_000 and len(once["logarithmic with a band"]) < 15_000


@pytest.mark.parametrize("suffix", FILE_SUFFIXES)
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
        assert "A caption. Words: 1." in text and ">4x384</text>" in text, "text stays text"
        assert THEMES["light"]["series-2"] in text and "var(" not in text
    else:
        assert b"/Title (A title)" in paths[0].read_bytes() and b"CreationDate" not in paths[0].read_bytes()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_figure(figure(PLOTS["few points"]), tmp_path / "file" / "a.png")


def test_text_stays_text_in_every_plot(tmp_path):
    series = [Series(HOSTILE, [(0, 1), (1, 2)], names=[HOSTILE, "b"]), Series("b", [(0, 1)])]
    group = BarGroup(HOSTILE, [Bar(HOSTILE, 1.0, None, 0, HOSTILE)])
    every = (
        Plot(series, Axis(HOSTILE), Axis(HOSTILE)), Bars([group], HOSTILE), Links(1, 1, [LinkKind(HOSTILE, [(1, 1)])]),
        Heat([[0.5]], [HOSTILE], [HOSTILE], HOSTILE, HOSTILE, 0, 1, HOSTILE),
    )  # fmt: skip
    spoiled = figure(Panels([(HOSTILE, drawing) for drawing in every], 2), HOSTILE, HOSTILE)
    svg = svg_of(spoiled)
    assert "<script" not in svg and "\u202e" not in svg and "\x00" not in svg and "7*7" in svg
    ElementTree.fromstring(svg)
    for suffix in FILE_SUFFIXES:
        write_figure(spoiled, tmp_path / f"a{suffix}", titled=True)
    ElementTree.parse(tmp_path / "a.svg")


@pytest.mark.parametrize(("values", "axis", "labels"), DECLARED["ticks"])
def test_axes_mark_round_numbers(values, axis, labels):
    axis = Axis(**axis)
    with drawn(Plot([Series("a", [(value, 1) for value in values])], axis, Axis("y"))) as sheet:
        [axes] = plot_axes(sheet)
    assert [label.get_text() for label in axes.get_xticklabels()] == labels
    assert [float(label.replace(",", "")) for label in labels] == pytest.approx(list(axes.get_xticks()))
    low, high = axes.get_xlim()
    assert low < min(values) and max(values) < high and (not axis.from_zero or low == 0)


def test_series_differ_by_more_than_colour():
    with drawn(PLOTS["all styles"]) as sheet:
        lines = plot_axes(sheet)[0].get_lines()
    looks = [(line.get_color(), line.get_marker(), str(line._dash_pattern)) for line in lines]
    assert all(len(set(found)) == SERIES for found in zip(*looks, strict=True))


def test_names_stand_beside_their_points_where_there_is_room():
    points = [(i % 7 * 0.01, i % 5 * 0.01) for i in range(40)]
    series = Series("shapes", points, mark="points", names=[f"a long name {i}" for i in range(40)])
    with drawn(Plot([series], Axis("x"), Axis("y"))) as sheet:
        assert 0 < sheet.named < 40
    with drawn(PLOTS["front"]) as sheet:
        sheet.canvas.draw_without_rendering()
        [axes] = plot_axes(sheet)
        names = {text.get_text(): text.get_window_extent() for text in sheet.paper.texts if text.get_text()[1:2] == "x"}
        steps = axes.transData.transform([(0.1, 1.0), (0.2, 1.0), (0.2, 0.5), (0.4, 0.5), (0.4, 0.3)])
    assert set(names) == {"3x384", "4x384", "6x384", "2x312", "5x312"}
    for box in names.values():
        for (x, y), (end, below) in pairwise(steps):
            beside = box.x0 >= max(x, end) or box.x1 <= min(x, end)
            assert beside or box.y0 >= max(y, below) or box.y1 <= min(y, below), "the front runs through no name"


def test_numbers_in_cells_are_those_of_the_matrix():
    values = [[0.25, 0.5], [None, 1.0]]
    with drawn(Heat(values, ["0", "1"], ["0", "1"], "r", "c", 0.0, 1.0, "CKA")) as sheet:
        [axes] = plot_axes(sheet)
    assert [(text.get_text(), text.get_color()) for text in axes.texts] == [
        (".25", "#000000"), (".50", "#000000"), ("1.0", "#ffffff")
    ]  # fmt: skip


def test_every_layer_has_a_box_of_its_own():
    with drawn(PLOTS["all links"]) as sheet:
        boxes = [patch for patch in sheet.paper.patches if isinstance(patch, Rectangle)]
    assert len(boxes) == 10 + 25
    for left in {box.get_x() for box in boxes}:
        column = sorted(box.get_y() for box in boxes if box.get_x() == left)
        assert all(below - above > 15 for above, below in pairwise(column))


def test_long_names_keep_both_ends():
    name = "hidden_states, uniform_last on 6x384"
    short = shortened(name, 100)
    head, tail = short.split("…")
    assert name.startswith(head) and name.endswith(tail) and abs(len(head) - len(tail)) <= 1 and len(tail) > 3
    assert text_width(short) <= 100 < text_width(name)
    assert shortened("short", 200) == "short"


def test_numbers_are_written_with_separators():
    written = [show(v) for v in (1234567, 1234.5, 0.123456, 3.0, None, float("nan"))]
    assert written == ["1,234,567", "1,234", "0.1235", "3", "–", "–"]
    assert plots.spans_widely([0.01, 1]) and not any(plots.spans_widely(values) for values in ([0.5, 1], [-1, 100], []))


def test_colours_can_be_read_in_both_themes():
    for theme in THEMES.values():
        for role in ("ink", "muted", "link", "warning"):
            assert min(plots.contrast(theme[role], theme[paper]) for paper in ("paper", "panel")) >= 4.5, role
        for role in ("heat", *(f"series-{number}" for number in range(1, SERIES + 1))):
            assert plots.contrast(theme[role], theme["paper"]) >= 4.5, role
        for level in range(21):
            assert plots.contrast(theme[f"on-{level}"], plots.heat_colour(theme, level)) >= 4.5
    assert plots.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert plots.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
