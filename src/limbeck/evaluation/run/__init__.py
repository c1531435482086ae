"""The run of an evaluation: its cells, the rows and weights that they leave in the output folder.

`evaluation` is the whole run, `trainings` carries cells out in one process or several, and the other files are what is
written.
"""
