"""Tasks: their descriptions in YAML, and their rows.

`registry` finds a task by its name, `definition` and `sources` are the schema of its description, and `splits` and
`split_files` read its rows. `corpus_rows` gives the same rows to a run that trains on them.
"""
