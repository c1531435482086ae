"""The results of an evaluation: the chosen grid points, the content of the tables, and the files for leaderboards."""
