"""What laplace-torch computes, in its own environment: ``python laplace_torch.py IN.pt OUT.pt``.

It runs as a file of its own and imports nothing of tangentlab.
"""

import sys

import torch
from laplace import Laplace
from torch.utils.data import DataLoader, TensorDataset


def main(source: str, target: str) -> None:
    """Fit every case of a file and write means, covariances and log marginal likelihoods."""
    torch.set_default_dtype(torch.float64)
    cases = torch.load(source, weights_only=False)
    found = {}
    for name, case in cases.items():
        model = torch.nn.Sequential(
            torch.nn.Linear(case["x"].shape[1], 16), torch.nn.Tanh(), torch.nn.Linear(16, case["outputs"])
        )
        model.load_state_dict(case["state"])
        loader = DataLoader(TensorDataset(case["x"], case["y"]), batch_size=20)
        gp = {"n_subset": len(case["x"])} if case["structure"] == "gp" else {}
        noise = {"sigma_noise": case["noise"] ** 0.5} if case["likelihood"] == "regression" else {}
        fitted = Laplace(
            model,
            case["likelihood"],
            subset_of_weights=case["weights"],
            hessian_structure=case["structure"],
            prior_precision=case["precision"],
            **noise,
            **gp,
        )
        fitted.fit(loader)
        mean, covariance = fitted._glm_predictive_distribution(case["new"])
        found[name] = {"mean": mean.detach(), "covariance": covariance.detach()}
        if case["structure"] == "full":
            found[name]["evidence"] = float(fitted.log_marginal_likelihood())
        if case["likelihood"] == "classification":
            found[name]["probabilities"] = fitted(case["new"], pred_type="glm", link_approx="probit").detach()
    torch.save(found, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
