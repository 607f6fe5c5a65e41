"""Checks inside an environment that has nothing but tangentlab, its dependencies and the extras named as arguments.

It is run as a file, so that nothing of the checkout is on the path. The last line of its output is a report in JSON.
"""

import importlib
import json
import subprocess
import sys
import sysconfig
import time
from pathlib import Path


def command(*arguments: str) -> str:
    """Run the installed command, and return what it prints."""
    program = Path(sysconfig.get_path("scripts")) / "tangentlab"
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode or "Traceback" in done.stderr:
        raise SystemExit(f"tangentlab {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


begin = time.perf_counter()
import torch  # noqa: E402

import tangentlab  # noqa: E402

model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3)).double()
x = torch.randn(30, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
kernel = tangentlab.ntk(model, x)
first = time.perf_counter() - begin

if "site-packages" not in str(tangentlab.__file__):
    raise SystemExit(f"This is not the installed package: {tangentlab.__file__}.")
error = float((kernel - tangentlab.reference.ntk(model, x)).abs().max() / kernel.abs().max())
if not error < 1e-12:
    raise SystemExit(f"The kernel differs from the reference by {error}.")

from tangentlab import data, estimators, linalg, linearize, models, posterior, store, training  # noqa: E402

digits = data.load("digits", n_train=60, n_test=30)
network = models.build("mlp", input_shape=digits.input_shape, outputs=10, seed=0)
table = tangentlab.explain(network, digits.train)
if not len(table):
    raise SystemExit("explain returns no rows.")
spec = training.TrainingSpec(epochs=1, batch_size=20, optimizer=training.SGD(0.01))
training.train(linearize(network), digits, spec, progress=False)
stored = store.compute(network, digits.train, "kernel.zarr", readout="pntk", progress=False)
one_hot = torch.nn.functional.one_hot(digits.train.targets, 10).double()
linalg.regress(stored, one_hot, ridge=1e-2)
operator = tangentlab.NTKOperator(model, x, readout="pntk").to_scipy()
if operator.shape != (30, 30):
    raise SystemExit(f"The operator is {operator.shape}.")
posterior.fit(model, x, torch.randn(30, 3, dtype=torch.float64))
flat = digits.train.batch(range(60))[0].flatten(1).numpy()
estimators.NTKClassifier(ridge=0.1).fit(flat, digits.train.targets.numpy()).predict(flat)

if command("--version").strip() != f"tangentlab {tangentlab.__version__}":
    raise SystemExit("The command has another version than the package.")
if "tangentlab kernel compute" not in command():
    raise SystemExit("The command without arguments shows no examples.")
small = ("--model", "mlp", "--data", "digits", "--n-train", "40", "--quiet")
command("kernel", "compute", *small, "--readout", "pntk", "--out", "cli.zarr")
command("spectrum", "--kernel", "cli.zarr", "--out", "spectrum", "--quiet")
command("train", *small, "--epochs", "1", "--out", "trained")

# Every extra works where it is installed, and is named by the error where it is not.
extras = set(sys.argv[1:])


def plot() -> object:
    """Draw a kernel."""
    from tangentlab import plot as package

    return package.kernel(torch.eye(4))


def report() -> object:
    """Write the page of a kernel, and one experiment with its figure."""
    from tangentlab import experiments

    tangentlab.explore(network, digits.train, progress=False).save("explorer.html")
    return experiments.reproduce("samarin2022/fig2", "tiny", progress=False)


def dask() -> object:
    """Read a stored kernel as a Dask array."""
    return stored.to_dask().sum().compute()


def gp() -> object:
    """Evaluate a GPyTorch kernel."""
    from tangentlab import gp as package

    return package.NTKKernel(models.build("mlp", input_shape=(1, 1, 20), outputs=1, seed=0))


def cloud() -> object:
    """Write a kernel to an object store in memory."""
    return store.compute(network, digits.train, "memory://bucket/kernel.zarr", readout="pntk", progress=False)


def huggingface() -> object:
    """Write a task vector."""
    from tangentlab import finetune

    vector = finetune.TaskVector.between(network.state_dict(), network.state_dict())
    vector.save("vector.safetensors")
    return vector


features = {"plot": plot, "report": report, "dask": dask, "gp": gp, "cloud": cloud, "huggingface": huggingface}
for name, use in features.items():
    try:
        use()
    except tangentlab.TangentError as refusal:
        if name in extras or f"tangentlab[{name}]" not in refusal.remedy:
            raise
    else:
        if name not in extras and name != "huggingface":
            raise SystemExit(f"{name} works without its extra.")
modules = {
    "huggingface": ("accelerate", "peft", "transformers"),
    "lightning": ("lightning",),
    "slurm": ("dask_jobqueue",),
}
for name in sorted(modules.keys() & extras):
    for needed in modules[name]:
        importlib.import_module(needed)
print(json.dumps({"seconds_to_first_kernel": round(first, 2), "error": error, "extras": sorted(extras)}))
