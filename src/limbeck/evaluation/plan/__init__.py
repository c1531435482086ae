"""The plan of an evaluation, before anything runs: the request, its models, and the cells of its grid.

A *cell* is one model on one task, at one grid point (`points`), with one seed. `planner` makes the cells of a
`request`, `identity` says what a cell depends on, and `columns` names the columns of the tables that cells fill.
Evaluators import these files, except `planner`, which asks the evaluators for cells.
"""
