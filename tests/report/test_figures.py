"""Figures of a report: what is drawn, and the words and numbers that stand for it."""

from limbeck.report.figures import Measured, plot_figure, quality_figures
from limbeck.report.plot_drawing import drawn
from limbeck.report.plots import Axis, Plot, Series


def test_the_front_is_what_no_other_beats():
    teacher = Measured("teacher", 5.0, 0.9, teacher=True)
    models = [Measured("fast", 1.0, 0.5), Measured("slow and worse", 3.0, 0.4), teacher]
    [figure] = quality_figures(models, "accuracy", "batch 1")
    assert figure.caption.endswith("in both: fast, teacher.")
    assert {row[0]: row[2:] for row in figure.data.rows}["slow and worse"] == ("3", "0.4")
    [lowest] = quality_figures(models, "divergence, nats", "batch 1", lowest=True)
    assert lowest.caption.startswith("The lower left corner is best")
    assert lowest.caption.endswith("fast, slow and worse.")


def test_models_whose_names_have_no_room_are_numbered_and_all_are_found():
    crowd = [Measured(f"hidden_states, mapping {i}", 104.0, 0.8 + 0.001 * (i // 2)) for i in range(8)]
    [figure] = quality_figures([*crowd, Measured("teacher", 1000.0, 1.0, teacher=True)], "agreement", "batch 1")
    with drawn(figure.drawing) as sheet:
        sheet.canvas.draw_without_rendering()
        names = {text.get_text(): text.get_window_extent() for text in sheet.paper.texts if text.get_text().isdigit()}
    assert sorted(names) == [str(number) for number in range(1, 10)]
    assert not any(one.overlaps(other) for a, one in names.items() for b, other in names.items() if a != b)
    assert "1: hidden_states, mapping 0; 2: hidden_states, mapping 1;" in figure.caption
    assert figure.data.rows[3][0] == "4: hidden_states, mapping 3"


def test_names_that_find_room_are_written_and_no_model_lies_on_the_edge():
    models = [Measured("student", 40.0, 0.66), Measured("teacher", 80.0, 0.69, teacher=True)]
    [figure] = quality_figures(models, "MRR", "batch 1")
    with drawn(figure.drawing) as sheet:
        low, high = sheet.canvas.axes[1].get_ylim()
        assert {"student", "teacher"} <= {text.get_text() for text in sheet.paper.texts if text.get_bbox_patch()}
    assert "1:" not in figure.caption and low + 0.1 * (high - low) < 0.66 < 0.69 < high - 0.1 * (high - low)


def test_the_words_of_a_long_line_give_its_course():
    points = [(float(x), (x - 30) ** 2 / 100 + 1) for x in range(51)]
    figure = plot_figure("Loss", Plot([Series("loss", points)], Axis("step"), Axis("nats")))
    assert "loss: from 10 at 0 to 5 at 50, lowest 1 at 30." in figure.description
