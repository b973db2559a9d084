"""PyTorch's biLM tends to the full softmax by samples, as TensorFlow's and ours do."""

import subprocess

from tests.support import torch_peer

CODE = """
import torch
from torch.nn import functional
from benchmarks.peers.elmo import sampled_cross_entropy

torch.manual_seed(0)
softmax = torch.nn.Linear(8, 40)
h_RD, next_R = torch.randn(64, 8), torch.randint(0, 40, (64,))
expected = functional.cross_entropy(softmax(h_RD), next_R)
for samples in (100, 100_000):
    print(abs(sampled_cross_entropy(h_RD, next_R, softmax, samples) - expected).item())
"""


def test_samples_tend_to_the_full_softmax():
    torch_peer.skip_without_torch()
    command = [torch_peer.PEER_PYTHON, "-c", CODE]
    done = subprocess.run(command, cwd=torch_peer.ROOT, capture_output=True, text=True, check=True)
    few, many = map(float, done.stdout.split())
    assert many < 0.01 < few < 0.5
