"""The benchmarks of the analysis, small, on the embedded digits."""

import pytest

from benchmarks import alignment, cheaper_training, energy_concentration, interpolation_threshold, jacobian_products


def test_alignment_without_a_kernel(capsys):
    arguments = ["--dataset", "digits", "--samples", "60", "--functions", "20", "--threads", "1"]
    assert alignment.main(arguments) == 0
    assert "alignment of 20 functions on 60 samples" in capsys.readouterr().out


def test_energy_concentration(capsys):
    arguments = ["--dataset", "digits", "--samples", "40", "80", "--k", "5", "--seeds", "2", "--threads", "1"]
    assert energy_concentration.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["mlp", "mlp", "lenet", "lenet"]
    assert "paper 25.8 %; K = 5, N = 40" in lines[3]
    assert "paper 25.8 %; K = 5, N = 80" in lines[4]
    assert all(0 < float(line.split()[1]) < 100 for line in lines[1:])


@pytest.mark.parametrize("images", [["--pad-to", "16"], ["--shift", "4", "--canvas", "16"]])
def test_interpolation_threshold(images, capsys):
    arguments = ["--dataset", "digits", *images, "--width", "0.25", "--ridges", "100", "1e9", "--threads", "1"]
    assert interpolation_threshold.main(arguments) == 0
    bound, first, second = capsys.readouterr().out.splitlines()
    assert bound.startswith("seed 0: 1,062 points, 1,079 parameters, rank of J at most ")
    assert first.startswith("seed 0, 1,062 points, 1,079 parameters, ridge 100 eps tr K: test accuracy ")
    assert "ridge 1e+09 eps tr K" in second
    assert float(second.split("accuracy ")[1].split()[0]) > 90


def test_the_solver_at_the_threshold_against_lapack(capsys):
    """The targets cannot be met, the least squares are LAPACK's, and the rank of J is within its bound."""
    arguments = ["--dataset", "digits", "--pad-to", "16", "--width", "0.15", "--ridges", "0", "--threads", "1"]
    assert interpolation_threshold.main([*arguments, "--lapack"]) == 0
    bound, solver, lapack = capsys.readouterr().out.splitlines()
    assert int(lapack.split("rank ")[1].split(", smallest")[0].replace(",", "")) <= int(
        bound.split()[-1].replace(",", "")
    )
    assert float(solver.split("residual ")[1].split(",")[0]) > 1e-3
    assert float(lapack.split()[-1]) < 1e-2
    assert interpolation_threshold.main([*arguments, "--bound"]) == 0
    assert capsys.readouterr().out.splitlines() == [bound]


def test_products_with_the_jacobian(capsys):
    assert jacobian_products.main(["--dataset", "digits", "--samples", "20", "--calls", "1", "--threads", "1"]) == 0
    head, *products = capsys.readouterr().out.splitlines()
    assert head.startswith("20 points, 60,941 parameters, 1 threads")
    assert [line.split(":")[0] for line in products] == ["J u", "J^T v"]
    assert all(float(line.split()[-1]) < 1e-12 for line in products)


def test_cheaper_training(capsys):
    """Gradients of both ways are compared before anything is timed."""
    assert cheaper_training.main(["--rounds", "1", "--batch", "4", "--count", "2", "--threads", "1"]) == 0
    assert capsys.readouterr().out.count("gain") == 7
