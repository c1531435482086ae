"""The numbers of the comparative study (arXiv 2310.08797), tables 3 and 5 to 7, as printed."""

# Method and mapping (a strategy, or the teacher layer) to the averages of 6L-DistilBERT, 6L, 4L and 3L:
# monolingual GLUE | multilingual GLUE | multilingual XNLI.
TABLE_3: dict[tuple[str, str | int], str] = {
    ("hidden_states", "single"): "84.1 79.4 80.2 78.9 | 80.8 77.1 78.0 74.7 | 56.2 55.1 51.6 50.6",
    ("hidden_states", "last"): "83.2 80.4 79.3 77.7 | 81.7 77.0 78.3 72.6 | 63.1 61.0 60.3 54.4",
    ("hidden_states", "uniform"): "82.9 80.6 79.6 76.6 | 81.6 78.2 78.3 73.5 | 59.9 59.9 59.7 59.9",
    ("hidden_states", "uniform_consecutive"): "83.9 80.6 80.6 77.7 | 82.4 78.8 78.0 75.9 | 65.5 62.2 60.4 58.6",
    ("hidden_states", "uniform_last"): "84.1 80.4 80.4 77.7 | 83.1 78.7 79.2 75.0 | 67.0 62.7 62.5 57.9",
    ("output_distribution", "single"): "84.1 78.1 79.4 76.6 | 78.5 75.1 75.2 67.9 | 50.5 48.2 51.6 43.8",
    ("output_distribution", "last"): "83.1 80.4 79.3 76.4 | 80.7 76.9 76.1 69.8 | 62.6 57.0 54.1 42.7",
    ("output_distribution", "uniform"): "83.4 79.8 79.8 77.1 | 79.9 78.0 77.9 65.4 | 60.4 54.1 52.0 42.8",
    ("output_distribution", "uniform_consecutive"): "83.7 80.3 79.5 76.7 | 81.7 78.7 76.4 70.1 | 63.1 61.0 56.5 48.2",
    ("output_distribution", "uniform_last"): "84.1 80.5 79.9 77.1 | 82.1 78.4 76.4 72.3 | 66.0 60.9 60.0 48.6",
    ("minilmv2", 12): "84.2 81.9 79.9 77.6 | 82.3 80.1 79.3 74.4 | 67.0 66.7 63.1 59.3",
    ("minilmv2", 11): "84.2 82.5 80.0 78.2 | 83.1 81.0 80.2 75.8 | 69.1 67.5 65.6 62.0",
    ("minilmv2", 10): "84.4 82.2 80.7 78.3 | 82.9 80.5 78.3 73.4 | 67.5 66.9 63.5 61.5",
    ("direct_minilm", 12): "84.0 81.3 79.7 78.2 | 83.2 80.8 79.0 75.1 | 66.3 66.1 64.7 60.7",
    ("direct_minilm", 11): "84.4 81.7 79.6 78.0 | 81.9 81.1 80.3 73.8 | 66.9 65.9 64.8 61.0",
    ("direct_minilm", 10): "84.3 81.7 80.4 78.3 | 83.4 80.9 79.7 75.6 | 66.3 64.8 65.4 60.5",
}

# Tables 5 and 6: student and method to the best mapping and its MNLI QQP QNLI SST-2 CoLA STS-B MRPC RTE average.
GLUE_DETAILS: dict[str, dict[tuple[str, str], tuple[str | int, str]]] = {
    "monolingual": {
        ("6l-distilbert", "hidden_states"): ("uniform_last", "82.6 86.2 88.7 90.8 45.9 85.9 89.7 65.1 79.4"),
        ("6l-distilbert", "output_distribution"): ("uniform_last", "82.7 86.5 88.3 91.3 50.8 85.5 89.7 64.4 79.9"),
        ("6l-distilbert", "minilmv2"): (10, "83.0 86.6 90.1 91.6 53.1 86.7 89.0 64.2 80.5"),
        ("6l-distilbert", "direct_minilm"): (11, "82.9 86.6 90.0 91.4 52.7 86.4 89.0 64.9 80.5"),
        ("6l", "hidden_states"): ("uniform_consecutive", "78.3 85.0 85.9 90.9 31.2 83.2 84.4 56.3 74.4"),
        ("6l", "output_distribution"): ("uniform_last", "79.1 84.6 86.3 89.7 38.6 82.3 83.7 57.9 75.3"),
        ("6l", "minilmv2"): (11, "80.8 84.9 88.0 90.3 36.2 84.5 86.2 62.5 76.7"),
        ("6l", "direct_minilm"): (11, "80.0 85.1 87.2 90.9 36.1 83.3 85.9 59.7 76.0"),
        ("4l", "hidden_states"): ("uniform_consecutive", "77.3 84.9 85.7 90.0 26.9 83.4 83.0 60.1 73.9"),
        ("4l", "output_distribution"): ("uniform_last", "78.2 84.6 85.1 90.1 32.2 83.3 83.2 55.1 74.0"),
        ("4l", "minilmv2"): (10, "78.8 83.8 86.0 90.8 30.9 83.0 84.3 58.2 74.5"),
        ("4l", "direct_minilm"): (10, "79.0 84.2 85.7 90.0 29.7 82.5 84.9 56.6 74.1"),
        ("3l", "hidden_states"): ("single", "74.3 82.8 84.0 89.4 20.0 80.8 83.4 57.5 71.5"),
        ("3l", "output_distribution"): ("uniform_last", "73.8 81.9 83.4 86.6 15.1 78.8 82.7 52.8 69.4"),
        ("3l", "minilmv2"): (10, "75.1 81.9 84.8 87.3 13.3 81.6 82.0 55.1 70.1"),
        ("3l", "direct_minilm"): (10, "75.7 82.2 84.0 88.5 16.8 81.0 83.3 53.5 70.6"),
    },
    "multilingual": {
        ("6l-distilbert", "hidden_states"): ("uniform_last", "80.8 86.8 87.9 90.2 32.3 84.7 88.5 62.6 76.7"),
        ("6l-distilbert", "output_distribution"): ("uniform_last", "80.1 86.4 86.2 89.8 33.1 84.1 87.5 60.5 76.0"),
        ("6l-distilbert", "minilmv2"): (11, "81.3 85.8 88.8 89.6 40.2 85.9 89.3 61.0 77.7"),
        ("6l-distilbert", "direct_minilm"): (10, "81.0 86.4 89.2 89.8 37.8 85.9 90.1 61.7 77.7"),
        ("6l", "hidden_states"): ("uniform_consecutive", "75.0 82.8 83.0 86.7 16.9 80.8 84.6 58.5 71.1"),
        ("6l", "output_distribution"): ("uniform_consecutive", "76.2 83.7 83.6 87.5 16.9 78.1 85.0 55.9 71.1"),
        ("6l", "minilmv2"): (11, "78.3 83.7 86.9 89.1 29.2 83.6 85.1 60.3 74.5"),
        ("6l", "direct_minilm"): (11, "78.3 84.3 86.1 89.4 25.5 84.5 86.9 58.0 74.1"),
        ("4l", "hidden_states"): ("uniform_last", "75.6 83.7 83.8 87.8 18.3 81.2 83.3 59.0 71.6"),
        ("4l", "output_distribution"): ("uniform", "73.4 83.8 81.2 85.2 17.0 80.0 82.8 58.6 70.3"),
        ("4l", "minilmv2"): (11, "76.8 83.4 85.2 87.6 17.1 83.9 86.0 58.1 72.3"),
        ("4l", "direct_minilm"): (11, "77.0 83.6 85.2 88.5 19.2 83.5 85.2 59.1 72.7"),
        ("3l", "hidden_states"): ("uniform_consecutive", "71.0 80.7 82.1 84.6 11.0 75.8 82.2 54.9 67.8"),
        ("3l", "output_distribution"): ("uniform_last", "68.1 79.4 79.7 81.9 2.6 61.5 81.2 54.6 63.6"),
        ("3l", "minilmv2"): (11, "72.7 80.6 83.2 84.6 9.7 70.6 81.7 57.4 67.6"),
        ("3l", "direct_minilm"): (10, "72.2 81.2 83.4 84.8 15.9 67.9 82.0 58.0 68.2"),
    },
}

# Table 7: the same for XNLI, ar bg de el en es fr hi ru sw th tr ur vi zh.
XNLI_DETAILS: dict[tuple[str, str], tuple[str | int, str]] = {
    ("6l-distilbert", "hidden_states"): (
        "uniform_last",
        "64.7 69.7 69.6 69.2 80.7 72.0 70.2 64.6 67.7 51.2 65.3 62.5 58.9 70.4 68.6",
    ),
    ("6l-distilbert", "output_distribution"): (
        "uniform_last",
        "63.7 69.1 69.4 67.0 78.6 70.7 68.9 60.0 69.0 51.2 65.4 61.9 57.9 68.5 68.8",
    ),
    ("6l-distilbert", "minilmv2"): (11, "65.5 71.6 72.1 71.5 81.4 75.0 73.5 65.3 70.6 58.1 65.1 67.1 60.9 69.7 69.3"),
    ("6l-distilbert", "direct_minilm"): (
        11,
        "63.8 69.4 69.3 68.5 79.2 73.2 71.2 64.1 67.2 55.1 63.9 65.6 59.7 66.6 67.0",
    ),
    ("6l", "hidden_states"): (
        "uniform_last",
        "59.7 67.2 63.4 65.6 75.9 68.7 66.8 58.3 62.4 48.9 62.7 59.1 53.4 63.2 65.1",
    ),
    ("6l", "output_distribution"): (
        "uniform_last",
        "55.7 62.6 63.7 59.2 76.5 66.9 63.7 54.1 62.0 45.7 57.9 56.3 51.0 62.8 62.2",
    ),
    ("6l", "minilmv2"): (11, "65.0 69.7 70.4 68.8 80.3 73.1 71.5 62.9 69.3 53.8 65.0 65.7 59.6 69.2 68.0"),
    ("6l", "direct_minilm"): (12, "63.2 68.8 70.1 68.1 78.4 70.5 70.0 62.2 66.6 52.4 64.6 64.0 59.1 66.2 66.9"),
    ("4l", "hidden_states"): (
        "uniform_last",
        "56.9 64.5 66.2 66.3 77.3 68.2 63.9 57.9 63.9 49.2 61.8 59.2 54.0 64.2 64.2",
    ),
    ("4l", "output_distribution"): (
        "uniform_last",
        "55.7 62.6 63.7 59.2 76.5 66.9 63.7 54.1 62.0 45.7 57.9 56.3 51.0 62.8 62.2",
    ),
    ("4l", "minilmv2"): (11, "62.9 67.5 67.8 68.2 77.8 70.7 68.2 62.4 67.0 51.0 63.6 64.7 57.7 67.2 67.4"),
    ("4l", "direct_minilm"): (10, "63.2 68.3 67.9 67.6 78.3 69.7 69.6 63.1 64.9 49.0 64.2 62.4 58.6 67.2 66.3"),
    ("3l", "hidden_states"): ("uniform", "58.3 63.4 60.5 60.6 74.1 65.6 61.6 56.6 61.4 46.7 57.3 55.9 51.8 61.1 63.1"),
    ("3l", "output_distribution"): (
        "uniform_last",
        "45.6 52.3 48.7 47.8 69.9 55.0 49.4 42.9 47.3 40.9 46.3 44.4 41.6 49.7 47.8",
    ),
    ("3l", "minilmv2"): (11, "60.0 64.9 63.6 64.3 74.1 66.7 64.2 58.2 61.8 49.4 59.7 60.7 55.3 64.2 62.4"),
    ("3l", "direct_minilm"): (11, "57.4 63.0 64.1 63.3 74.3 66.1 65.1 57.2 62.1 46.7 56.7 58.1 55.2 63.6 61.8"),
}
