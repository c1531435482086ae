"""The run of an evaluation: its cells, the rows and weights that they leave in the output folder.

`evaluation` is the whole run: `pending` cells get their tokens, `trainings` carries them out in one process or in
several, and `progress` reports them. `cell_rows`, the `results_file` that they stand in, and `kept_weights` are what is
written into the `output_folder`.
"""
