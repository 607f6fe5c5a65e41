"""Why a family has no kernel or no linearization, with what shows it; and what is known to be wrong."""

from typing import Any

from tests.conformance.family import (
    Refusal,
    autograd_fails,
    autograd_fails_twice,
    cannot_be_copied,
    random_numbers_are_drawn,
)

_LAYER_DROP = "it draws a number for each layer that could be skipped, in evaluation mode too"


def draws(because: str) -> dict[str, Any]:
    """Neither kernel nor linearization: random numbers."""
    return {
        "refusal": Refusal("draws random numbers", because, random_numbers_are_drawn),
        "linearization_refusal": Refusal("drew random numbers", because, random_numbers_are_drawn),
    }


LAYER_DROP = draws(_LAYER_DROP)
ROUTES_AT_RANDOM = draws("the second expert is taken with a probability, in evaluation mode too")


NO_GRADIENT_OF_A_CHECKPOINT = {
    "refusal": Refusal("cannot differentiate", "its reentrant checkpoint forbids torch.autograd.grad", autograd_fails),
    "linearization_refusal": Refusal("neither forwards nor twice", "it uses a reentrant checkpoint", autograd_fails),
}
ONE_DERIVATIVE = {
    "linearization_refusal": Refusal(
        "neither forwards nor twice backwards",
        "its scan is a torch.autograd.Function without a jvp, whose backward writes in place",
        autograd_fails_twice,
    )
}
KEEPS_ITS_STATE = {
    "linearization_refusal": Refusal(
        "cannot be copied", "it keeps the recurrent state of the last call, with its graph", cannot_be_copied
    )
}


def fails(what: str) -> dict[str, Any]:
    """Wrong at present."""
    return {"known_failure": what}


NO_GRAD = fails("linearize takes derivatives through torch.no_grad() in its values, not in its gradients")
FLOAT32_LOGITS = fails("raw RuntimeError in the probe: float64 weights and outputs cast to float32")
INT32_TOKENS = fails("raw RuntimeError in the rule of embeddings: token numbers in int32")
BATCH_OF_ONE = fails(
    "PyTorch's gradient of batch normalization is wrong for a batch of one in some layouts, and the reference and the "
    "fallback differentiate batches of one"
)
UNSEEN_EXPERTS = fails(
    "experts that none of the three samples of the probe is sent to are left out of the kernel, where the control flow "
    "changes between two and three samples"
)
BACKWARD_RAISES = fails("raw error of the network's own backward pass, which is no RuntimeError")
INFLUENCE_NOT_SEEN = fails(
    "samples influence each other only through the largest entry of the batch, which three samples need not show; the "
    "kernel of the samples one at a time is given instead of a refusal"
)
