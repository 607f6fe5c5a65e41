"""Samarin, Roth and Belius, 2022: feature learning and random features in standard finite-width CNNs."""
