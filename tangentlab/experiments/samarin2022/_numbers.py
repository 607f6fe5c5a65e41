"""The paper's numbers: accuracies in percent, gaps in percentage points."""

# Difference in test accuracy of network and linearization at the first and last width.
GAPS = {
    "fig2": {1: 4.67, 60: 0.48},
    "fig3": {1: 27.65, 60: 3.91},
    "fig4": {1: 20.22, 60: 13.17},
    "fig5": {1: 20.4, 4: 18.56},
}

WIDTHS = (1.0, 2.0, 5.0, 10.0, 25.0, 60.0)

# Binary MNIST, digit 0 against the rest, by width; None is a dash in the table, a cell the authors could not compute.
TABLE1 = {
    "test": {
        "solver": (97.8, 99.86, 99.89, None, None, None),
        "linearized": (99.61, 99.75, 99.81, 99.85, 99.85, 99.89),
        "network": (99.89, 99.89, 99.88, 99.89, 99.89, 99.88),
    },
    "train": {
        "solver": (100.0, 100.0, 100.0, None, None, None),
        "linearized": (99.42, 99.74, 99.88, 99.97, 99.9983, 100.0),
        "network": (100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
    },
}
# The same with digits shifted by up to 7 pixels.
TABLE2 = {
    "test": {
        "solver": (86.05, 98.7, 99.17, None, None, None),
        "linearized": (95.48, 98.51, 98.97, 99.31, 99.51, 99.55),
        "network": (99.72, 99.80, 99.82, 99.77, 99.82, 99.86),
    },
    "train": {
        "solver": (100.0, 100.0, 100.0, None, None, None),
        "linearized": (95.42, 98.29, 98.90, 99.25, 99.49, 99.61),
        "network": (99.77, 99.83, 99.86, 99.90, 99.92, 99.90),
    },
}
# Rows of J in figures 6 and 7: 600 samples, 10 outputs.
RANK_ROWS = 6000
