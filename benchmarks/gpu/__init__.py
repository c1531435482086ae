"""What a GPU does for limbeck, measured part by part within minutes; `make gpu` runs it from the source tree."""
