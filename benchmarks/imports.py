"""How long imports take in new processes, beside that of PyTorch: ``python -m benchmarks.imports``."""

import argparse
import statistics
import subprocess
import sys
import time

CASES = {
    "import torch": "import torch",
    "import tangentlab": "import tangentlab",
    "the kernel engine": "from tangentlab import ntk",
    "linearized networks": "from tangentlab import linearize",
    "training": "from tangentlab import training",
    "everything in tangentlab.analysis": "from tangentlab import analysis",
    "the command line": "import tangentlab.cli",
}


def seconds(code: str) -> float:
    """Run code in a new process, and return how long the process took."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Print a table: medians over rounds in which every case runs once, and their ratio to PyTorch's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    for code in CASES.values():
        seconds(code)  # files into the system's cache
    times = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, code in CASES.items():
            times[name].append(seconds(code))
    torch = statistics.median(times["import torch"])
    print("| what | code | seconds | smallest and largest | over import torch |\n|---|---|---|---|---|")
    for name, found in times.items():
        middle = statistics.median(found)
        spread = f"{min(found):.2f} to {max(found):.2f}"
        print(f"| {name} | `{CASES[name]}` | {middle:.2f} | {spread} | {middle / torch:.2f} |")


if __name__ == "__main__":
    main()
