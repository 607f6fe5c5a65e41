"""A training run for a process of its own, to be killed."""

import os
import signal
from pathlib import Path
from typing import Any

import torch

from tangentlab.linearized import linearize
from tangentlab.training import SGD, Adam, Callback, LinearDecay, OneCycle, TrainingResult, train
from tests.training.problems import convnet, images, spec


def run(kind: str, folder: Path | None) -> TrainingResult:
    """The same run every time, interrupted or not."""
    torch.set_num_threads(1)
    network = convnet(dropout=0.3 if kind == "network" else 0.0)
    model = network if kind == "network" else linearize(network)
    settings: dict[str, Any] = {"epochs": 60, "thresholds": (0.5, 0.2), "watch_every": 7}
    if kind == "network":
        settings |= {"optimizer": Adam(0.003, weight_decay=1e-4), "schedule": OneCycle()}
    else:
        settings |= {"optimizer": SGD(0.01, momentum=0.9), "schedule": LinearDecay()}
    return train(
        model,
        images(),
        spec(**settings),
        test=images(20, seed=1),
        folder=folder,
        checkpoint_every=3,
        watch=images()[0][:3],
        callbacks=[Callback("bias", lambda m, epoch: m.get_parameter("6.bias").detach(), epochs=range(0, 61, 10))],
    )


def die_at(moment: str, count: int) -> None:
    """Kill this process at a chosen moment of the ``count``-th checkpoint."""
    calls = {"write": 0, "replace": 0, "unlink": 0}

    def kill(name: str) -> None:
        calls[name] += 1
        if name == moment and calls[name] == count:
            os.kill(os.getpid(), signal.SIGKILL)

    save, replace, unlink = torch.save, os.replace, Path.unlink

    def save_half(state: Any, file: Any) -> None:
        if moment == "write" and calls["write"] == count - 1:
            file.write(b"PK\x03\x04 the first bytes of a checkpoint")
            file.flush()
        kill("write")
        save(state, file)

    def replace_or_die(*args: Any) -> None:
        kill("replace")
        replace(*args)

    def unlink_or_die(*args: Any, **kwargs: Any) -> None:
        kill("unlink")
        unlink(*args, **kwargs)

    torch.save, os.replace, Path.unlink = save_half, replace_or_die, unlink_or_die  # type: ignore[assignment,method-assign]


def work(kind: str, folder: Path, moment: str | None = None) -> None:
    """The body of the process."""
    if moment is not None:
        die_at(moment, 4)
    run(kind, folder)
