"""A linearized BERT trained by ``Trainer`` or Lightning, in a process of its own that can be killed and started again.

Usage: python -m tests.finetune.trainer_script trainer|lightning FOLDER [--die STEP]. The weights are printed as a hash.
With Lightning, --within saves within epochs, --resumable takes a loader that has a state, --network trains the network
itself instead of its linearization.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tangentlab import linearize

STEPS, EVERY = 12, 3


class Sentences(Dataset[dict[str, Tensor]]):
    """Random tokens with a label that depends on them."""

    def __init__(self, count: int = 32) -> None:
        self.ids = torch.randint(3, 40, (count, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[index], "labels": (self.ids[index].sum() % 3)}


class Resumable(DataLoader[Any]):
    """A shuffling loader with the interface by which Lightning restores positions, ``state_dict``."""

    def __init__(self, data: Dataset[Any], batch_size: int) -> None:
        super().__init__(data, batch_size, shuffle=True, generator=torch.Generator().manual_seed(0))
        self._epoch, self._position, self._skip = self.generator.get_state(), 0, 0

    def __iter__(self) -> Any:
        skip, self._skip = self._skip, 0
        self._epoch = self.generator.get_state()
        for number, batch in enumerate(super().__iter__()):
            if number >= skip:
                self._position = number + 1
                yield batch

    def state_dict(self) -> dict[str, Any]:
        if self._position == len(self):  # the next epoch
            return {"epoch": self.generator.get_state(), "position": 0}
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["epoch"])
        self._skip = state["position"]


def build(linear: bool = True) -> nn.Module:
    """Linearize BERT at fixed weights, or return it as it is."""
    from tests.finetune.transformer_models import bert

    torch.manual_seed(0)
    network = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)[0].eval()
    return linearize(network) if linear else network


def digest(model: nn.Module) -> str:
    """Hash the bits of all weights."""
    content = hashlib.sha256()
    for tensor in model.state_dict().values():
        content.update(tensor.detach().numpy().tobytes())
    return content.hexdigest()


def by_trainer(folder: Path, options: argparse.Namespace) -> nn.Module:
    """Train with ``transformers.Trainer``, from its last checkpoint if there is one."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Die(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == options.die:
                os.kill(os.getpid(), signal.SIGKILL)

    arguments = TrainingArguments(
        str(folder),
        max_steps=STEPS,
        save_steps=EVERY,
        eval_strategy="steps",
        eval_steps=EVERY,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=100,
    )
    trainer = Trainer(
        build(),
        arguments,
        train_dataset=Sentences(),
        eval_dataset=Sentences(8),
        callbacks=[Die()] if options.die else [],
    )
    trainer.train(resume_from_checkpoint=bool(list(folder.glob("checkpoint-*"))))
    assert "eval_loss" in trainer.evaluate()
    return trainer.model


def by_lightning(folder: Path, options: argparse.Namespace) -> nn.Module:
    """Train with Lightning, from its last checkpoint if there is one: that of the end of an epoch, or of any step."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = build(not options.network)

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            if self.global_step == options.die:
                os.kill(os.getpid(), signal.SIGKILL)
            loss: Tensor = self.model(**batch).loss
            return loss

        def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
            self.log("validation_loss", self.model(**batch).loss)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    lightning.seed_everything(0, verbose=False)
    when: dict[str, Any] = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        callbacks=[
            ModelCheckpoint(folder, "{step}", save_top_k=-1, **({"every_n_train_steps": 1} if options.within else when))
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    saved = sorted(folder.glob("*.ckpt"), key=lambda path: int(path.stem.rpartition("=")[2]))
    data = Sentences(4 * EVERY)
    loader: DataLoader[Any] = Resumable(data, 4) if options.resumable else DataLoader(data, batch_size=4)
    trainer.fit(
        module,
        loader,
        DataLoader(Sentences(8), batch_size=4),
        ckpt_path=str(saved[-1]) if saved else None,
        weights_only=False,
    )
    return module.model


def main() -> None:
    """Train and print the hash."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["trainer", "lightning"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die", type=int)
    for name in ("--within", "--resumable", "--network"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    run = by_trainer if options.library == "trainer" else by_lightning
    print(digest(run(options.folder, options)))


if __name__ == "__main__":
    main()
