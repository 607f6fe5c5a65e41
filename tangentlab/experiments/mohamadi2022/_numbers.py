"""What the paper says in numbers; its figures carry no tables."""

# Theorem 1: the difference of eNTK and pNTK at initialization falls with the width w of the last layer as w^RATE.
RATE = -0.5
# Epochs at which the statistics are reported, of 200.
EPOCHS = (0, 50, 100, 150, 200)
# Points of the kernels, and test points of the regression.
POINTS, TEST_POINTS = 1000, 500
