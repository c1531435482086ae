"""Models: loading, shapes, initialisation, streams and the taps that read them."""
