"""The kernel recorder in tangentlab's loop, transformers' Trainer and Lightning."""

from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tangentlab import TangentError, analysis, linalg, linearize, ntk, training
from tangentlab.finetune import KernelRecorder
from tangentlab.linearized import linearization_error

X = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
SPEC = training.TrainingSpec(epochs=3, batch_size=20, optimizer=training.SGD(0.5))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))


def test_rows_are_their_definitions() -> None:
    model, states = network(), []
    recorder = KernelRecorder(X[:20], Y[:20], k=3)
    keep = training.Callback("weights", lambda m, e: {n: t.clone() for n, t in m.state_dict().items()})
    result = training.train(model, (X, Y), SPEC, callbacks=[recorder, keep], progress=False)
    plain = training.train(network(), (X, Y), SPEC, progress=False)
    assert (
        result.history["train_loss"].tolist() == plain.history["train_loss"].tolist()
    )  # random numbers are left alone
    table = recorder.to_pandas()
    assert list(table["epoch"]) == [0, 1, 2, 3]
    states = list(result.values["weights"].values())
    y = (2.0 * Y[:20] - 1).double()
    kernels = []
    for state in states:
        model.load_state_dict(state)
        kernels.append(ntk(model.eval(), X[:20], readout="pntk"))
    lin = linearize(network().eval())
    for epoch, row in enumerate(table.to_dict("records")):
        kernel = kernels[epoch]
        assert row["distance_to_start"] == pytest.approx(analysis.kernel_distance(kernels[0], kernel), abs=1e-6)
        last = kernels[max(epoch - 1, 0)]
        assert row["distance_to_last"] == pytest.approx(analysis.kernel_distance(last, kernel), abs=1e-6)
        assert row["alignment"] == pytest.approx(float(analysis.alignment(kernel, y)), rel=1e-5)
        k = kernel.double()
        assert row["alignment_normalized"] == pytest.approx(float(y @ k @ y / (k.norm() * 20)), rel=1e-5)
        h = torch.eye(20, dtype=torch.float64) - 1 / 20
        ck, cy = h @ k @ h, torch.outer(h @ y, h @ y)
        assert row["alignment_centered"] == pytest.approx(float((ck * cy).sum() / (ck.norm() * cy.norm())), rel=1e-5)
        assert row["energy_concentration"] == pytest.approx(
            float(analysis.energy_concentration(kernel, y, 3)), rel=1e-4
        )
        assert row["largest_eigenvalue"] == pytest.approx(float(linalg.eigh(kernel, 1).values[0]), rel=1e-5)
        lin.load_state_dict(states[epoch])
        assert row["linearization_error"] == pytest.approx(linearization_error(lin, X[:20]).overall, rel=1e-4)
        assert result.values["kernel"][epoch] == pytest.approx(row)


def test_a_resumed_run_is_compared_with_its_start(tmp_path: Path) -> None:
    whole = KernelRecorder(X[:20], Y[:20], folder=tmp_path / "whole")
    model = network()
    for step in range(3):
        whole.record(model, step, step)
        model[0].weight.data += 0.3
    for folder in (tmp_path / "parts", tmp_path / "none"):
        model = network()
        KernelRecorder(X[:20], Y[:20], folder=folder).record(model, 0, 0)
        if folder.name == "none":
            continue
        for step in (1, 2):
            model[0].weight.data += 0.3
            KernelRecorder(X[:20], Y[:20], folder=folder).record(model, step, step)
        pd.testing.assert_frame_equal(
            pd.read_csv(folder / "kernel.csv"), pd.read_csv(tmp_path / "whole" / "kernel.csv"), rtol=1e-6
        )
    with pytest.warns(UserWarning, match="from step 5 on"):
        KernelRecorder(X[:20], Y[:20]).record(network(), 5, 1)


def test_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install '.[huggingface]'")
    from tests.finetune.trainer_script import Sentences
    from tests.finetune.transformer_models import bert

    class Seen(transformers.TrainerCallback):
        logs: ClassVar[list[dict[str, Any]]] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self.logs.append(dict(logs))

    data = Sentences(16)
    arguments = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True
    )
    probe = {"input_ids": data.ids[:8]}
    recorder = KernelRecorder(probe, data.ids[:8].sum(1) % 3, every=2, unit="step", folder=tmp_path / "kernel")
    trainer = transformers.Trainer(bert()[0], arguments, train_dataset=data, callbacks=[Seen(), recorder])
    recorder.attach(trainer)
    trainer.train()
    assert list(recorder.to_pandas()["step"]) == [0, 2, 4, 6, 8]
    assert sum("kernel/distance_to_start" in logs for logs in Seen.logs) == 5
    assert (recorder.to_pandas()["linearization_error"][1:] > 0).all()
    assert trainer.model.training
    assert "kernel/alignment_centered" in trainer.state.log_history[-2]


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed: pip install '.[lightning]'")
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    recorder = KernelRecorder(X[:20], Y[:20], network=lambda module: module.network)
    options = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=2, callbacks=[recorder], logger=CSVLogger(tmp_path), **options)
    trainer.fit(Module(), DataLoader(TensorDataset(X, Y), batch_size=20))
    assert list(recorder.to_pandas()["epoch"]) == [0, 1, 2]
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    logged = pd.read_csv(Path(trainer.logger.log_dir) / "metrics.csv")
    assert logged["kernel/distance_to_start"].notna().sum() == 3
    again = KernelRecorder(X[:20], Y[:20], network=lambda module: module.network)
    more = lightning.Trainer(max_epochs=3, callbacks=[again], logger=False, default_root_dir=tmp_path, **options)
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    more.fit(Module(), loader, ckpt_path=str(tmp_path / "last.ckpt"), weights_only=False)
    assert list(again.to_pandas()["epoch"]) == [0, 1, 2, 3]
    assert torch.equal(again.probe.start, recorder.probe.start)


def test_refusals() -> None:
    with pytest.raises(TangentError, match="does not change"):
        KernelRecorder(X, Y).record(linearize(network().eval()), 0, 0)
    with pytest.raises(TangentError, match="several numbers per sample"):
        KernelRecorder(X, Y, readout="full")
    with pytest.raises(TangentError, match="every=0"):
        KernelRecorder(X, Y, every=0)
    with pytest.raises(TangentError, match="after epochs"):
        training.train(network(), (X, Y), SPEC, callbacks=[KernelRecorder(X, Y, unit="step")], progress=False)
    with pytest.raises(TangentError, match="no entries"):
        analysis.alignments(__import__("tangentlab").NTKOperator(network().eval(), X, readout="pntk"), Y.double())
