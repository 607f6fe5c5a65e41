"""Why a family has no kernel or no linearization, with what shows it."""

from tests.conformance.family import (
    Refusal,
    autograd_fails,
    autograd_fails_twice,
    cannot_be_copied,
    gradients_are_nan,
    hooks_hold_the_network,
    outputs_are_nan,
    outputs_are_random,
    samples_mix,
)

_AT_RANDOM = "the second expert is taken with a probability, in evaluation mode too"
_RAISES = "the backward pass of its own autograd function raises an error"
_NAN = "its mask multiplies zeros in float32 by the least number of float64"
_NAN_GRADIENT = "PyTorch's gradient of its softmax over padding alone is NaN"

ROUTES_AT_RANDOM = {
    "refusal": Refusal("draws random numbers", _AT_RANDOM, outputs_are_random),
    "linearization_refusal": Refusal("drew random numbers", _AT_RANDOM, outputs_are_random),
}
BACKWARD_RAISES = {
    "refusal": Refusal("cannot differentiate", _RAISES, autograd_fails),
    "linearization_refusal": Refusal("cannot differentiate", _RAISES, autograd_fails),
}
HASHES_AT_RANDOM = {
    "refusal": Refusal("draws random numbers", "it hashes by vectors that every call draws", outputs_are_random),
    "linearization_refusal": Refusal("cannot differentiate", _RAISES, autograd_fails),
}
HOOK_RAISES = {
    "refusal": Refusal("cannot differentiate", "a hook of its backward pass raises an error", autograd_fails),
    "linearization_refusal": Refusal(
        "cannot be copied faithfully", "that hook refers to the network, and a copy shares it", hooks_hold_the_network
    ),
}
NOT_A_NUMBER = {
    "refusal": Refusal("outputs hold NaN", _NAN, outputs_are_nan, certain=False),  # not in float64 throughout
    "linearization_refusal": Refusal("outputs hold NaN", _NAN, outputs_are_nan, certain=False),
}
NAN_GRADIENT = {
    "refusal": Refusal("the kernel holds NaN", _NAN_GRADIENT, gradients_are_nan, certain=False),
    "linearization_refusal": Refusal("gradients hold NaN", _NAN_GRADIENT, gradients_are_nan, certain=False),
}
INFLUENCE = {
    "refusal": Refusal(
        "the outputs of samples change",
        "it divides by the largest entry of the batch",
        samples_mix,
        certain=False,  # three samples need not show it
    )
}
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
