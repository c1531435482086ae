"""Costs beside those that papers printed: of the shapes that are compared, not of the first model's alone."""

from limbeck.report.evaluation_tables import cost_sections


def costs(shapes, published):
    sizes = {"embedding_parameters": 1, "transformer_parameters": 1, "parameters": 2, "megabytes": 1.0}
    models = [
        {"model": f"m{index}", "shape": shape, **sizes, "megaflops_per_token": {"128": 1.0}}
        for index, shape in enumerate(shapes)
    ]
    rows = [
        {"paper": "minilm", "table": table, "device": "a GPU", "shape": shape, "task": task, "values": {"ms": 3}}
        for table, shape, task in published
    ]
    return {"models": models, "timings": [], "machine": {"device": "cpu"}, "published": rows}


def published_tables(shapes, published):
    return {heading: (headings, rows) for heading, headings, rows in list(cost_sections(costs(shapes, published)))[2:]}


SMALL, LARGE = "bert 2x192, 3 heads, FFN 768", "bert 6x384, 12 heads, FFN 1536"


def test_a_papers_table_of_the_first_models_shape_alone_is_left_out():
    assert published_tables([LARGE, SMALL], [("4", "6x384", None)]) == {}
    assert published_tables([SMALL, LARGE], [("4", "6x384", None)]).keys() == {"MiniLM, table 4 (a GPU)"}
    assert published_tables([LARGE], [("4", "6x384", None)]).keys() == {"MiniLM, table 4 (a GPU)"}


def test_a_table_that_has_a_compared_shape_keeps_the_first_models_beside_it():
    found = published_tables([LARGE, SMALL], [("4", "6x384", None), ("4", "2x192", None), ("5", "6x384", None)])
    assert found == {"MiniLM, table 4 (a GPU)": (["", "ms"], [["6x384", "3"], ["2x192", "3"]])}


def test_texts_have_a_column_where_a_row_names_some():
    found = published_tables([SMALL], [("4", "2x192", "mnli"), ("4", "2x192", None)])
    assert found["MiniLM, table 4 (a GPU)"] == (["", "Texts of", "ms"], [["2x192", "mnli", "3"], ["2x192", "–", "3"]])
