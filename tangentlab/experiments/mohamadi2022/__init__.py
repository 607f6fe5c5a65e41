"""Mohamadi, Bae and Sutherland, 2022: a fast, well-founded approximation to the empirical NTK, the pseudo-NTK."""
