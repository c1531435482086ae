"""Evaluators: how a model is scored on a task.

`evaluator` has the base class and the registry. limbeck's own are `fine_tuned`, `as_is`, `vectors` and `mteb`, and the
other files are their parts. `rows` reads the rows of a task. The evaluators of a head make tokens of them
(`prepared_task`, `token_files`) and predict by its outputs (`head_match`, `head_outputs`); `fine_tuning` is
one training. Those of vectors read texts by `sentence_vectors`, and score retrievals by `document_search`.
"""
