"""Tests of the linearized model."""
