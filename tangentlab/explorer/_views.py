"""The views of the page: what each shows in one sentence, and the theory behind it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """One view; its markup is in ``_assets/<id>.html``, its code in ``_assets/<id>.js``.

    Attributes:
        id: Its name on the page.
        title: Its heading.
        says: What it shows, in one sentence.
        theory: The theory in a few sentences.
        formula: Its equation, in plain characters.
        page: The page of the documentation that says more.
        wide: Whether it takes the whole width.
    """

    id: str
    title: str
    says: str
    theory: str
    formula: str
    page: str
    wide: bool = False


VIEWS = (
    View(
        "heat",
        "The kernel",
        "Each cell is a pair of samples, bright where the network considers them similar: a step that changes"
        " its output on one changes it on the other.",
        "The neural tangent kernel of two samples is the inner product of the gradients of the network's "
        "output with respect to all weights. Its cosine does not depend on the size of the gradients.",
        "K(x, x') = ⟨∇f(x), ∇f(x')⟩,   cos = K(x, x') / √(K(x, x) K(x', x'))",
        "theory/kernel/",
    ),
    View(
        "map",
        "Map of samples",
        "Samples that the kernel considers similar are near each other; drag a rectangle to select some in all views.",
        "Tangent features are the gradients of the network's output. t-SNE keeps neighborhoods and not "
        "distances; kernel PCA is linear. Two eigenfunctions are coordinates too: kernel PCA without "
        "centering.",
        "φⱼ(x) = ⟨∇f(x), vⱼ⟩ √N / σⱼ",
        "theory/measures/",
    ),
    View(
        "sample",
        "A sample",
        "What the kernel finds similar to one sample, what it predicts for it from all the others, and which "
        "of them speak for and against that.",
        "Kernel regression without sample i predicts a sum over the other samples. A term is positive if its "
        "sample speaks for the predicted class; terms and prior add up to the prediction, and large ones of both "
        "signs cancel. Uncertainty is the share of the prior standard deviation that is left. Nothing is fitted "
        "again.",
        "f₋ᵢ(xᵢ) = yᵢ − aᵢ / Bᵢᵢ = Σⱼ≠ᵢ Kᵢⱼ (aⱼ − Bⱼᵢ aᵢ / Bᵢᵢ),   a = B y,   B = (K + ρ)⁻¹",
        "attribution/",
        wide=True,
    ),
    View(
        "functions",
        "Eigenfunctions",
        "The samples on which an eigenfunction is largest and smallest, and how well its sign alone tells "
        "classes apart.",
        "An eigenfunction has mean square 1 over the samples. Its sign divides the samples in two; each class"
        " belongs to the side where most of its samples are, and the accuracy counts the samples on the side "
        "of their class.",
        "φⱼ = √N uⱼ,   share of the labels' energy = |uⱼᵀ Y|² / |Y|²",
        "theory/measures/",
        wide=True,
    ),
    View(
        "spectrum",
        "The spectrum",
        "Eigenfunctions with large eigenvalues are learned first; the lower curve shows how much of the "
        "labels the first K of them hold.",
        "Gradient descent on the linearization learns eigenfunction j at a rate proportional to its "
        "eigenvalue. The energy of the labels is the squared length of their projection; its square root is "
        "the energy concentration of Ortiz-Jiménez et al. (2021). The effective rank is the exponential of "
        "the entropy of the singular values of J.",
        "K uⱼ = λⱼ uⱼ,   energy = Σⱼ≤K |uⱼᵀ Y|² / |Y|²,   rank = exp(−Σ pⱼ log pⱼ),  pⱼ = √λⱼ / Σ √λᵢ",
        "theory/measures/",
    ),
    View(
        "layers",
        "Layers",
        "Each layer's weights contribute a part of the kernel: its share of the trace, and the eigenvalues of"
        " that part.",
        "The kernel is a sum over the layers, because the inner product of gradients is a sum over weights.",
        "K = Σ over layers of ⟨∂f/∂θ_layer, ∂f/∂θ_layer⟩",
        "theory/kernel/",
    ),
    View(
        "training",
        "Training",
        "How far the kernel has moved from the first checkpoint, how it aligned with the labels, and which "
        "eigenfunctions turned away.",
        "The distance is one minus the cosine of two kernels as vectors. The alignment is 1 if the labels are"
        " the leading eigenfunction. A cell of the lower map says how much of an eigenfunction at the first "
        "checkpoint is in one at this checkpoint; a kernel that does not rotate has its diagonal filled.",
        "distance = 1 − ⟨K₀, K⟩ / (|K₀| |K|),   alignment = tr(Yᵀ K Y) / (λ₁ |Y|²),   overlap = |⟨uᵢ(0), uⱼ(t)⟩|²",
        "theory/measures/",
        wide=True,
    ),
    View(
        "linear",
        "Network and linearization",
        "Every sample's margin by the network and by its linearization; red where they predict different classes.",
        "The linearization is the first-order expansion in the weights. The margin is the output of the "
        "label's class minus the largest other output, so that it is positive where the prediction is right.",
        "f_lin(x) = f(x; θ₀) + ∇f(x; θ₀) · (θ − θ₀)",
        "theory/kernel/",
        wide=True,
    ),
    View(
        "nads",
        "Neural anisotropy directions",
        "The directions of the input along which a linear rule is easiest to learn for this network, best "
        "first, each with its alignment.",
        "They are the right singular vectors of the mixed derivative with respect to weights and inputs, at "
        "the origin. Gray is zero.",
        "M = ∇²_{θ,x} f,   M vⱼ = σⱼ uⱼ,   alignment of v · x = |M v|²",
        "theory/measures/",
        wide=True,
    ),
)
