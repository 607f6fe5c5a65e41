"""The tools compared: tangentlab itself and its peers, each behind the same small interface."""

from __future__ import annotations

from benchmarks.peers._peer import Peer, Setting, Unsuitable
from benchmarks.peers.neural_tangents import NeuralTangents
from benchmarks.peers.nngeometry import NNGeometry
from benchmarks.peers.tangentlab import TangentLab
from benchmarks.peers.torch_func import TorchFunc

__all__ = ["OURS", "PEERS", "Peer", "Setting", "Unsuitable"]

OURS = "tangentlab"
PEERS: dict[str, Peer] = {peer.name: peer for peer in (TangentLab(), TorchFunc(), NNGeometry(), NeuralTangents())}
