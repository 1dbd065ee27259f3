"""The gradient of a network's energy with respect to its weights, by the compiled library: see program.c."""

import math

import torch
from torch import Tensor, nn

from ebmlife.sampling.native.program import Program


class WeightGradients(Program):
    """x (B, C, H, W) and factors (B,) -> E(x) and the gradient of sum over i of factors_i E(x_i) with respect to the
    parameters of the network.

    Like a `Program` it is called by one thread at a time. The sums over images depend on the number of threads in their
    last bits.
    """

    def __init__(self, net: nn.Module, shape: tuple[int, ...], *, processor: str = "native") -> None:
        super().__init__(net, shape, processor=processor, learning=True)
        self._numbers = sum(math.prod(sums.shape) for sums in self._learned.values())

    def learn(self, x: Tensor, factors: Tensor, *, threads: int) -> tuple[Tensor, list[Tensor | None]]:
        """Returns the energies, and the gradients of the parameters that require one in their order, or None for one
        that E does not depend on."""
        with torch.enable_grad():
            reads = [read() for read in self._learned]  # what they compute from weights is then ready for `_refresh`
        self._versions = []  # weights that were written through `.data` are read again too
        self._refresh()
        x, factors = x.detach().contiguous(), factors.detach().contiguous()
        energy = torch.empty(len(x))
        sums = torch.zeros(max(1, threads), self._numbers)
        given = x.data_ptr(), factors.data_ptr(), energy.data_ptr()

        def work(worker: int, cut: tuple[int, int]) -> None:
            self._call(self._library.learn, worker, *given, sums[worker].data_ptr(), *cut)

        workers = self._in_threads(len(x), threads, work)
        total = sums[:workers].sum(0) if workers > 1 else sums[0]
        gradients = [total[at.first : at.first + math.prod(at.shape)].view(at.shape) for at in self._learned.values()]
        # The program's kernels may be computed from parameters, some of which may be frozen.
        weights = [p for p in self._net.parameters() if p.requires_grad]
        learned = [(read, gradient) for read, gradient in zip(reads, gradients, strict=True) if read.requires_grad]
        kernels, of_kernels = zip(*learned, strict=True)
        return energy, list(torch.autograd.grad(kernels, weights, of_kernels, allow_unused=True))
