"""Muon as Jordan et al., 2024 (https://kellerjordan.github.io/posts/muon/) write it, with the scale that
torch.optim.Muon calls "original". Debian's PyTorch has none, and PyTorch's own works in bf16.
"""
import torch

A, B, C = 3.4445, -4.7750, 2.0315


def newton_schulz(g):
    x = g / (g.norm() + 1e-7)
    if g.shape[0] > g.shape[1]:
        x = x.T
    for _ in range(5):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def muon_step(parameter, gradient, buffer, rate, momentum, decay):
    """Updates one matrix. All three are views of what it is a part of."""
    buffer.mul_(momentum).add_(gradient)
    rows, columns = parameter.shape
    update = newton_schulz(gradient + momentum * buffer) * max(1, rows / columns) ** 0.5
    parameter.mul_(1 - rate * decay).sub_(rate * update)


class Muon:
    """An optimizer of `matrices`, and AdamW of the others, which are vectors and `tables`. Filters are matrices
    with a row for each output. Each of the `parts` of a packed matrix, as many as that has, is one.
    """

    def __init__(self, matrices, parts, tables, vectors, adamw, rate, momentum):
        self.matrices, self.parts, self.rate, self.momentum = matrices, parts, rate, momentum
        self.decay = adamw["weight_decay"]
        self.buffers = [torch.zeros_like(matrix) for matrix in matrices]
        self.others = torch.optim.AdamW([{"params": tables}, {"params": vectors, "weight_decay": 0.0}], **adamw)

    def zero_grad(self):
        self.others.zero_grad()
        for matrix in self.matrices:
            matrix.grad = None

    @torch.no_grad()
    def step(self):
        self.others.step()
        for matrix, parts, buffer in zip(self.matrices, self.parts, self.buffers):
            flat = (value.view(len(value), -1).chunk(parts) for value in (matrix.data, matrix.grad, buffer))
            for views in zip(*flat):
                muon_step(*views, self.rate, self.momentum, self.decay)
