"""Benchmarks of tangentlab against its peers and against its own stated limits.

``python -m benchmarks`` compares the kernel engine with torch.func, nngeometry and neural-tangents;
``python -m benchmarks.limits`` checks the targets of the engine.
"""
