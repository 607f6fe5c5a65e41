"""Shared by all tests: one thread a worker, so that parallel workers do not fight for cores."""

import torch

torch.set_num_threads(1)
