"""Long runs that look for wrong numbers: `make soak`."""
