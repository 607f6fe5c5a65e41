"""Ortiz-Jimenez, Moosavi-Dezfooli and Frossard, 2021: what can linearized neural networks say about generalization?"""
