"""Benchmarks of ``tangentlab.posterior``: calibration on real data, and agreement with other tools."""
