"""The measures of students on held-out text: their names, titles and order."""

from limbeck.core.studies import HeldOutMeasure

MEASURES = (
    HeldOutMeasure(key="agreement", title="agreement", digits=3, best="highest"),
    HeldOutMeasure(key="retrieval", title="retrieval", digits=3, best="highest"),
    HeldOutMeasure(key="explained", title="hidden states", digits=3, best="highest"),
    HeldOutMeasure(key="relations", title="relations", digits=4, best="lowest"),
)
"""In the order of the columns; the first ranks the students where there is no task.

`agreement`: Spearman of the student's sentence similarities with the teacher's. `retrieval`: mean reciprocal rank at 10
of summaries finding their bodies. `explained` and `relations`: see `limbeck.comparison.last_layers.LayerFigures`.
"""
