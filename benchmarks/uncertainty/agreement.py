"""Do the posteriors of ``tangentlab.posterior`` agree with those of GPyTorch and laplace-torch?

    python -m benchmarks.uncertainty.agreement

fits one small network in float64 and prints the largest relative differences in mean, covariance and log marginal
likelihood: to GPyTorch's exact Gaussian process (regression), and to laplace-torch's linearized Laplace with the full
generalized Gauss-Newton matrix, all weights or the last layer, and in its functional (GP) form. laplace-torch runs in
an environment of its own, which is made on first use; ``--python`` names an interpreter that has it.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpytorch
import torch
from torch import Tensor, nn

from benchmarks.environments import interpreter
from tangentlab import posterior
from tangentlab.gp import NTKKernel

N, NEW = 60, 25
PEER = SimpleNamespace(name="laplace", requirements="requirements-laplace.txt")


def cases() -> dict[str, dict[str, Any]]:
    """Return the problems that both tools solve; half-trained networks, so that no gradient vanishes."""
    generator = torch.Generator().manual_seed(0)
    made = {}
    for name, likelihood, weights, structure in (
        ("classification, full GGN", "classification", "all", "full"),
        ("classification, last layer", "classification", "last_layer", "full"),
        ("regression, full GGN", "regression", "all", "full"),
        ("regression, functional", "regression", "all", "gp"),
    ):
        outputs = 3 if likelihood == "classification" else 2
        torch.manual_seed(1)
        model = network(outputs)
        x = torch.randn(N, 4, generator=generator, dtype=torch.float64)
        values = torch.stack([x.sin().sum(1), (x[:, 0] * x[:, 1])], 1)
        y = values + 0.1 * torch.randn(N, 2, generator=generator, dtype=torch.float64)
        labels = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        made[name] = {
            "likelihood": likelihood,
            "weights": weights,
            "structure": structure,
            "outputs": outputs,
            "state": model.state_dict(),
            "x": x,
            "y": labels if likelihood == "classification" else y,
            "new": torch.randn(NEW, 4, generator=generator, dtype=torch.float64),
            "precision": 0.8,
            "noise": 0.05,
        }
    return made


def network(outputs: int) -> nn.Module:
    """Return the network of all cases."""
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, outputs)).double()


def ours(case: dict[str, Any]) -> dict[str, Any]:
    """Fit one case with tangentlab."""
    model = network(case["outputs"])
    model.load_state_dict(case["state"])
    regression = case["likelihood"] == "regression"
    belief = posterior.fit(
        model, case["x"], case["y"], mean="network", prior_precision=case["precision"],
        noise=case["noise"] if regression else None, parameters=None if case["weights"] == "all" else "2",
    )  # fmt: skip
    found = belief.predict(case["new"])
    result = {"mean": found.mean, "covariance": found.covariance, "evidence": belief.log_marginal_likelihood}
    if not regression:
        result["probabilities"] = found.probabilities("diagonal")
    return result


class ExactGP(gpytorch.models.ExactGP):
    """GPyTorch's exact Gaussian process with the kernel of one output, its prior mean subtracted from the targets."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, model: nn.Module, precision: float) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(NTKKernel(model, readout=0, dtype=torch.float64)).double()
        self.covar_module.outputscale = torch.tensor(1 / precision, dtype=torch.float64)

    def forward(self, x: Tensor) -> Any:
        """Return the prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def against_gpytorch() -> dict[str, float]:
    """Compare a regression of one output with GPyTorch: mean, covariance, log marginal likelihood."""
    torch.manual_seed(2)
    model, x, new = network(1), torch.randn(N, 4).double(), torch.randn(NEW, 4).double()
    y = x.sin().sum(1) + 0.1 * torch.randn(N).double()
    precision, noise = 0.8, 0.05
    with torch.no_grad():
        start, start_new = model(x)[:, 0], model(new)[:, 0]
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    gp = ExactGP(x, y - start, likelihood, model, precision)
    exact = (gpytorch.settings.fast_computations(False, False, False), gpytorch.settings.cholesky_max_tries(1))
    with exact[0], exact[1], torch.no_grad():
        gp.train(), likelihood.train()
        evidence = float(gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, gp)(gp(x), y - start)) * N
        gp.eval(), likelihood.eval()
        theirs = gp(new)
        mean, covariance = theirs.mean + start_new, theirs.covariance_matrix
    belief = posterior.fit(model, x, y, prior_precision=precision, noise=noise)
    return {
        "mean": difference(belief.mean(new)[:, 0], mean),
        "covariance": difference(belief.covariance(new)[:, 0, :, 0], covariance),
        "evidence": abs(belief.log_marginal_likelihood - evidence) / abs(evidence),
    }


def difference(one: Tensor, two: Tensor) -> float:
    """Return the largest difference in units of the largest entry."""
    return float((one - two).abs().max() / two.abs().max())


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; return the exit code, 1 if a difference is above its limit."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.uncertainty.agreement", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--python", type=Path, help="an interpreter that has laplace-torch")
    options = parser.parse_args(arguments)
    rows = [("GPyTorch, exact GP", 1e-6, against_gpytorch())]
    python = options.python or interpreter(PEER, print)  # type: ignore[arg-type]
    problems = cases()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.pt", Path(folder) / "out.pt"
        torch.save(problems, source)
        script = Path(__file__).with_name("laplace_torch.py")
        subprocess.run([str(python), str(script), str(source), str(target)], check=True)
        theirs = torch.load(target, weights_only=True)
    for name, case in problems.items():
        mine, other = ours(case), theirs[name]
        found = {
            key: difference(mine[key], other[key])
            if isinstance(mine[key], Tensor)
            else abs(mine[key] - other[key]) / abs(other[key])
            for key in other
        }
        rows.append((f"laplace-torch, {name}", 1e-5, found))
    bad = 0
    for name, limit, found in rows:
        worst = max(found.values())
        bad += worst > limit
        each = ", ".join(f"{key} {value:.1e}" for key, value in found.items())
        print(f"{name}: {each} (at most {limit:.0e}){'' if worst <= limit else ' EXCEEDED'}")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
