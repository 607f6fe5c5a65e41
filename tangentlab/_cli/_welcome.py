"""What ``tangentlab`` without arguments shows: a few commands to copy."""

from rich.console import Console

EXAMPLES = (
    ("A kernel on disk and its spectrum", (
        "tangentlab kernel compute --model mlp --data digits --readout pntk --out kernel.zarr",
        "tangentlab spectrum --kernel kernel.zarr",
    )),
    ("A network next to its linearization", (
        "tangentlab compare --model mlp --data digits --epochs 5",
    )),
    ("Which training samples made a prediction", (
        "tangentlab train --model mlp --data digits --epochs 5 --out runs/mlp",
        "tangentlab attribute --model mlp --checkpoint runs/mlp/weights.pt --data digits --n-test 50 --out runs/top",
    )),
    ("Your own network and samples, in files that you write", (
        "tangentlab kernel compute --model net.py:build --data samples.npy --readout pntk --out own.zarr",
    )),
)  # fmt: skip
"""Purposes, each with commands that can be run one after the other."""


def welcome(console: Console) -> None:
    """Print the examples, and where all commands and options are listed."""
    console.print("tangentlab computes and uses the tangent kernels of neural networks.\n", markup=False)
    for purpose, commands in EXAMPLES:
        console.print(f"[bold]{purpose}[/]")
        for command in commands:
            console.print(f"  {command}", markup=False, soft_wrap=True)
        console.print()
    console.print(
        "All commands: tangentlab --help. Options of one command: tangentlab COMMAND --help.\n"
        "Tab completion: tangentlab --install-completion.",
        markup=False,
    )
