"""Tasks: their descriptions in YAML, and their rows.

`registry` finds a task by its name. `definition`, with `sources` and `each_values`, is the schema of its description.
`split_files` reads files, `splits` whole splits, and `loading` all that an evaluation needs of a task. `corpus_rows`
gives a split to a run that trains on it.
"""
