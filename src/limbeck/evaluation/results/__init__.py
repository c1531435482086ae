"""The results of an evaluation: the chosen grid points, the content of the tables, and the files for leaderboards.

`choices` chooses the grid point that stands for a model on a task. `summary` makes the content of the tables, with
`averages`, `published_rows` and `notes`. `predictions` are saved for `submissions`, the files that leaderboards take.
"""
