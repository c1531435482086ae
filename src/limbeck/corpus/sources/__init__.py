"""Sources: the files, Hub data sets and installed packages that a recipe names, read as documents or labelled rows."""
