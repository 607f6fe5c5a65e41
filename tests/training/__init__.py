"""Tests of the training loop, the closed forms and the comparison."""
