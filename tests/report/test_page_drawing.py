"""Scales and drawings: values lie where they belong, and nothing leaves the figure."""

from itertools import pairwise

import pytest

from limbeck.report.draw_bars import Bar, BarGroup, draw_bars
from limbeck.report.draw_heat import Heat, draw_heat
from limbeck.report.draw_legend import Entry, draw_legend
from limbeck.report.draw_plot import Plot, Series, draw_plot
from limbeck.report.make_figures import bars_figure, heat_figure, plot_figure
from limbeck.report.marks import WIDTH, Area, Cells, Label, Marker, Stroke, shortened, text_width
from limbeck.report.quality_figures import Measured, quality_figure
from limbeck.report.scales import Axis, make_scale, show, spans_widely


def of(drawing, kind):
    return [mark for mark in drawing.marks if isinstance(mark, kind)]


def assert_inside(drawing):
    for mark in drawing.marks:
        if isinstance(mark, Label):
            width = 0 if mark.turned else text_width(mark.text, mark.size)
            left = mark.x - {"start": 0, "middle": width / 2, "end": width}[mark.anchor]
            assert left >= -6 and left + width <= WIDTH + 6, mark
            assert 0 <= mark.y <= drawing.height, mark
        else:
            points = getattr(mark, "points", ()) or [(getattr(mark, "x", 0), getattr(mark, "y", 0))]
            assert all(-1 <= x <= WIDTH + 1 and -1 <= y <= drawing.height + 1 for x, y in points), mark


def test_scales_place_values_and_write_ticks():
    scale = make_scale([0, 400_000], Axis("step", whole=True), 0, 100)
    assert scale.place(scale.low) == 0 and scale.place(scale.high) == 100
    assert [scale.label(tick) for tick in scale.ticks][-1] == "400,000"
    fine = make_scale([0.1, 0.35], Axis("loss"), 0, 100)
    labels = [fine.label(tick) for tick in fine.ticks]
    assert len(set(labels)) == len(labels) and all(
        float(a) == pytest.approx(t) for a, t in zip(labels, fine.ticks, strict=True)
    )
    log = make_scale([0.001, 100], Axis("loss", log=True), 100, 0)
    assert [log.label(tick) for tick in log.ticks] == ["0.001", "0.01", "0.1", "1", "10", "100"]
    steps = [log.place(a) - log.place(b) for a, b in pairwise(log.ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert make_scale([5, 9], Axis("percent", from_zero=True), 0, 100).low == 0
    for values in ([], [3.0], [0.0, 0.0]):
        scale = make_scale(values, Axis("x"), 0, 10)
        assert scale.low < scale.high and scale.ticks


@pytest.mark.parametrize("values", [[1], [1, 1], [0.88, 1], [3, 3.12]], ids=str)
def test_an_axis_of_whole_numbers_marks_whole_numbers_only(values):
    scale = make_scale(values, Axis("generation", whole=True), 0, 100)
    assert scale.ticks and all(tick == int(tick) for tick in scale.ticks)
    assert all(0 < scale.place(value) < 100 for value in values)
    assert all("." not in scale.label(tick) for tick in scale.ticks)


def test_names_of_steps_stand_above_their_line():
    points = [(1.0, 2.0), (2.0, 1.5), (3.0, 1.0)]
    series = Series("front", points, 1, "steps", names=["first", "second", "third"])
    drawing = draw_plot(Plot([series], Axis("x"), Axis("y")))
    second = next(mark for mark in drawing.marks if isinstance(mark, Label) and mark.text == "second")
    marker = [mark for mark in drawing.marks if isinstance(mark, Marker)][1]
    assert second.x > marker.x and second.y < marker.y - 4


def test_numbers_are_written_with_separators():
    assert [show(v) for v in (1234567, 1234.5, 0.123456, 3.0, None, float("nan"))] == [
        "1,234,567",
        "1,234",
        "0.1235",
        "3",
        "–",
        "–",
    ]
    assert (
        spans_widely([0.01, 1]) and not spans_widely([0.5, 1]) and not spans_widely([-1, 100]) and not spans_widely([])
    )


def test_a_plot_has_its_points_where_its_values_are():
    plot = Plot([Series("a", [(1, 10.0), (2, 20.0), (4, 40.0)])], Axis("x"), Axis("y"))
    drawing = draw_plot(plot)
    assert_inside(drawing)
    (x1, y1), (x2, y2), (x3, y3) = ((mark.x, mark.y) for mark in of(drawing, Marker))
    assert (x2 - x1) == pytest.approx((x3 - x1) / 3) and (y1 - y2) == pytest.approx((y1 - y3) / 3)
    assert y1 > y2 > y3, "larger is higher"


def test_series_differ_by_more_than_colour():
    series = [Series(str(style), [(0, style), (1, style)], style) for style in range(6)]
    drawing = draw_plot(Plot(series, Axis("x"), Axis("y")))
    lines = [mark for mark in of(drawing, Stroke) if mark.ink.startswith("series-")]
    assert len({mark.dash for mark in lines}) == 6 and len({mark.symbol for mark in of(drawing, Marker)}) == 6
    assert {label.text for label in of(drawing, Label)} >= {series.label for series in series}, "a legend names them"


def test_a_band_reaches_from_the_least_to_the_greatest():
    points, band = [(0, 2.0), (1, 3.0)], [(1.0, 4.0), (2.0, 9.0)]
    drawing = draw_plot(Plot([Series("a", points, band=band)], Axis("x"), Axis("y")))
    area = of(drawing, Area)[0]
    heights = {round(mark.y, 6): value for mark, (_, value) in zip(of(drawing, Marker), points, strict=True)}
    per_unit = abs((min(heights) - max(heights)) / (3.0 - 2.0))
    assert max(y for _, y in area.points) - min(y for _, y in area.points) == pytest.approx(8 * per_unit)


def test_names_of_points_never_cover_each_other():
    points = [(i % 7 * 0.01, i % 5 * 0.01) for i in range(40)]
    series = Series("shapes", points, mark="points", names=[f"a long name {i}" for i in range(40)])
    drawing = draw_plot(Plot([series], Axis("x"), Axis("y")))
    assert_inside(drawing)
    boxes = [
        (mark.x, mark.y - 9, mark.x + text_width(mark.text, mark.size), mark.y + 3)
        for mark in of(drawing, Label)
        if mark.halo
    ]
    assert 0 < len(boxes) < 40
    for index, a in enumerate(boxes):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in boxes[:index])


def test_bars_begin_at_zero_and_say_their_values():
    groups = [
        BarGroup(
            "SST-2 (accuracy)", [Bar("teacher", 80.0), Bar("a very long name of a student and method", 40.0, 2.5, 1)]
        )
    ]
    drawing = draw_bars(groups, "percent")
    assert_inside(drawing)
    widths = [max(x for x, _ in mark.points) - min(x for x, _ in mark.points) for mark in of(drawing, Area)]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert {"80", "40 ± 2.5"} <= {mark.text for mark in of(drawing, Label)}
    figure = bars_figure("Scores", groups, "percent")
    assert figure.data.rows[1] == ("SST-2 (accuracy)", "a very long name of a student and method", "40 ± 2.5")
    assert "teacher: 80" in figure.description


def test_bars_below_zero_go_to_the_left():
    drawing = draw_bars([BarGroup("CoLA", [Bar("a", -5.0), Bar("b", 10.0)])], "Matthews")
    left, right = of(drawing, Area)
    assert max(x for x, _ in left.points) == pytest.approx(min(x for x, _ in right.points))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (13, 25), (64, 64)])
def test_a_heat_map_has_a_cell_for_every_value(rows, columns):
    values = [[(r * columns + c) / (rows * columns) for c in range(columns)] for r in range(rows)]
    values[0][0] = None
    names = [f"layer number {n}" for n in range(max(rows, columns))]
    heat = Heat(values, names[:rows], names[:columns], "student layer", "teacher layer", 0.0, 1.0, "CKA", upwards=True)
    drawing = draw_heat(heat)
    assert_inside(drawing)
    scale, cells = of(drawing, Cells)[:21], of(drawing, Cells)[21:]
    assert [mark.level for mark in scale] == list(range(21))
    assert sum(len(mark.boxes) for mark in cells) == rows * columns - 1, "what is unknown stays empty"
    figure = heat_figure("CKA", heat, "words")
    assert figure.data.rows[0][1] == "–" and len(figure.data.rows) == rows and len(figure.data.headings) == columns + 1


def test_numbers_in_cells_are_those_of_the_matrix():
    heat = Heat([[0.25, 0.5], [0.75, 1.0]], ["0", "1"], ["0", "1"], "r", "c", 0.0, 1.0, "CKA")
    texts = [mark.text for mark in draw_heat(heat).marks if isinstance(mark, Label) and mark.level is not None]
    assert texts == [".25", ".50", ".75", "1.0"]


def test_a_legend_goes_on_in_the_next_row():
    marks, below = draw_legend([Entry(f"a quite long label {n}", "ink", "circle", ()) for n in range(8)])
    rows = sorted({mark.y for mark in marks if isinstance(mark, Label)})
    assert len(rows) > 1 and below > rows[-1]
    assert all(mark.x + text_width(mark.text, mark.size) <= WIDTH for mark in marks if isinstance(mark, Label))


def test_long_names_keep_both_ends():
    name = "hidden_states, uniform_last on 6x384"
    short = shortened(name, 100)
    head, tail = short.split("…")
    assert name.startswith(head) and name.endswith(tail) and len(head) >= len(tail) > 3
    assert text_width(short) <= 100 < text_width(name)
    assert shortened("short", 200) == "short"


def test_the_front_is_what_no_other_beats():
    models = [
        Measured("fast", 1.0, 0.5),
        Measured("slow and worse", 3.0, 0.4),
        Measured("teacher", 5.0, 0.9, teacher=True),
    ]
    figure = quality_figure(models, "accuracy", "batch 1")
    assert figure.caption.endswith("in both: fast, teacher.")
    assert {row[0]: row[2:] for row in figure.data.rows}["slow and worse"] == ("3", "0.4")
    lowest = quality_figure(models, "divergence, nats", "batch 1", lowest=True)
    assert lowest.caption.startswith("The lower left corner is best") and lowest.caption.endswith(
        "fast, slow and worse."
    )


def test_models_whose_names_have_no_room_are_numbered_and_all_are_found():
    crowd = [Measured(f"hidden_states, mapping {i}", 104.0, 0.8 + 0.001 * (i // 2)) for i in range(8)]
    models = [*crowd, Measured("teacher", 1000.0, 1.0, teacher=True)]
    figure = quality_figure(models, "agreement", "batch 1")
    assert_inside(figure.drawing)
    written = [mark.text for mark in of(figure.drawing, Label) if mark.halo]
    assert sorted(written) == [str(number) for number in range(1, 10)]
    assert "1: hidden_states, mapping 0; 2: hidden_states, mapping 1;" in figure.caption
    assert figure.data.rows[3][0] == "4: hidden_states, mapping 3"
    boxes = [(m.x, m.y - 9, m.x + text_width(m.text, m.size), m.y + 3) for m in of(figure.drawing, Label) if m.halo]
    for index, a in enumerate(boxes):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in boxes[:index])


def test_names_that_find_room_are_written_and_no_model_lies_on_the_edge():
    models = [Measured("student", 40.0, 0.66), Measured("teacher", 80.0, 0.69, teacher=True)]
    figure = quality_figure(models, "MRR", "batch 1")
    assert [mark.text for mark in of(figure.drawing, Label) if mark.halo] == ["student", "teacher"]
    assert "1:" not in figure.caption
    places = [mark.y for mark in of(figure.drawing, Marker) if mark.title]
    lower, height = max(y for mark in of(figure.drawing, Stroke) for _, y in mark.points if mark.ink == "rule"), 200
    assert min(places) < max(places) < lower + 0.1 * height
    front = [mark for mark in of(figure.drawing, Stroke) if len(mark.points) == 3]
    name = next(mark for mark in of(figure.drawing, Label) if mark.text == "student")
    right = name.x + text_width(name.text, name.size)
    (start, corner, _) = front[0].points
    assert right < start[0] or name.y + 3 < start[1] or name.y - 9 > corner[1], "the front runs through no name"


def test_the_words_of_a_long_line_give_its_course():
    points = [(float(x), (x - 30) ** 2 / 100 + 1) for x in range(51)]
    figure = plot_figure("Loss", Plot([Series("loss", points)], Axis("step"), Axis("nats")))
    assert "loss: from 10 at 0 to 5 at 50, lowest 1 at 30." in figure.description
