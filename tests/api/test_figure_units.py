"""Units of figures in tables for pandas."""

import io

import pandas

from limbeck.api.figure_units import add_units

FIGURES = """method,figure,metric,mean,deviation,runs,low,high,retention
teacher,parameters,,22700000,,,,,
minilmv2,rte,accuracy,61.5,0.5,3,60.1,62.9,93.2
minilmv2,squad,best_f1_answer_threshold,-1.25,,1,,,
minilmv2,relations,,0.0123,,3,,,
minilmv2,tokens,,1500000,500000,3,,,
minilmv2,seconds,,75.5,,3,,,
,speedup at 1 x 128 tokens,,2.5,,,,,
"""


def test_figures_of_several_kinds_have_units_and_numbers_that_can_be_read():
    table = pandas.read_csv(io.StringIO(FIGURES))
    readable = add_units(table, "figure", without_unit=frozenset({"relations"}))
    assert list(readable["unit"]) == ["million", "%", "", "", "million", "s", "times"]
    assert list(readable["mean"]) == [22.7, 61.5, -1.25, 0.0123, 1.5, 75.5, 2.5]
    assert readable["deviation"][4] == 0.5
    assert list(readable.columns)[:3] == ["method", "figure", "unit"]
    assert readable["retention, %"][1] == 93.2
    # The table itself stays as it is.
    assert table["mean"][0] == 22_700_000
