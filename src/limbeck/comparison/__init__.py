"""Comparisons: methods x layer mappings x students x seeds under one token budget, one corpus and one initialisation.

`load` reads a `plan`, with its `methods`. `checks` refuses what is impossible before anything starts, `places` what is
nowhere, and `folder` what cannot be compared with the runs that are there. `run` makes the `cells` and hands them to
`work`, which distils, measures on `held_out` text and evaluates on tasks. `summary` makes the tables.
"""
