"""Ortiz-Jimenez, Moosavi-Dezfooli and Frossard, 2021: what can linearized neural networks say about generalization?"""

from tangentlab.experiments._paper import Paper

PAPER = Paper(
    "ortiz2021",
    "What can linearized neural networks actually say about generalization?",
    "Ortiz-Jimenez, Moosavi-Dezfooli and Frossard, 2021",
    (
        "_eigenfunction_figures",
        "_sample_size",
        "_energy",
        "_alignment",
        "_convergence",
        "_nads",
        "_lemma",
        "_theorem",
    ),
)
