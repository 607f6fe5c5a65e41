"""Options that several commands share, each written once."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str | None, typer.Option(help="A name of tangentlab.models, or path/to/file.py:factory.")]
ModelOption = Annotated[
    list[str] | None, typer.Option("--model-option", "-o", help="name=value for the model; again for more.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Weights: a state dict (.pt), .safetensors, or a folder of save_pretrained.")
]
Data = Annotated[str | None, typer.Option(help="A name of tangentlab.data, or a file of inputs (.npy, .npz, .pt).")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets.")]
Split = Annotated[str, typer.Option(help="train, test, or all (training samples, then test samples).")]
NTrain = Annotated[int | None, typer.Option(help="A stratified subset of so many training samples.")]
NTest = Annotated[int | None, typer.Option(help="A stratified subset of so many test samples.")]
DataSeed = Annotated[int, typer.Option(help="Draws the subsets.")]
Readout = Annotated[str, typer.Option(help="pntk, full, trace, or the number of an output.")]
Dtype = Annotated[str | None, typer.Option(help="float16, float32 or float64; by default the model's.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default the model's.")]
Tile = Annotated[int | None, typer.Option(help="Samples of a tile's side; by default as memory allows.")]
Memory = Annotated[str | None, typer.Option(help="Memory for all local processes together, for instance 8GiB.")]
Scratch = Annotated[Path | None, typer.Option(help="Folder for spilled factors; by default inside the store.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler, or local for one on this machine.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes on this machine.")]
ShardOption = Annotated[str | None, typer.Option("--shard", help="i/n: the i-th of n processes, counted from 0.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no estimate.")]
StorePath = Annotated[Path, typer.Argument(help="The store.")]
Task = Annotated[str, typer.Option(help="classes, cifar2, one-hot, random, or one-vs-rest:CLASS.")]
Out = Annotated[Path | None, typer.Option(help="Folder for tables and pictures.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training samples.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples in a minibatch.")]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
Momentum = Annotated[float, typer.Option(help="Of SGD.")]
WeightDecay = Annotated[float, typer.Option(help="Of SGD and Adam.")]
OptimizerName = Annotated[str, typer.Option("--optimizer", help="sgd or adam.")]
ScheduleName = Annotated[str, typer.Option("--schedule", help="constant, linear, steps or one-cycle.")]
LossName = Annotated[str | None, typer.Option("--loss", help="sigmoid, softmax or squared; by default the task's.")]
Seed = Annotated[int, typer.Option(help="Of the minibatches.")]
