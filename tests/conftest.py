"""Shared by all tests: one thread a worker, so that parallel workers do not fight for cores."""

import os

# Some virtual machines announce AMX and end a program that uses it with an illegal instruction, as PyTorch does in half
# precision. Set before oneDNN is loaded, and inherited by the processes that tests start.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

torch.set_num_threads(1)
