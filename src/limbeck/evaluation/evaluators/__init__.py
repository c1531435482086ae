"""Evaluators: how a model is scored on a task.

`evaluator` has the base class and the registry. limbeck's own are `fine_tuned`, `as_is` and `vectors`. The other files
are their parts: the rows of a task, their tokens, a training, the outputs of a head, sentence vectors, and a search.
"""
