"""What the scripts here share: training as PyTorch does it, and safetensors files."""
import json
import math
import struct

import torch

from muon import Muon

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32",
          torch.uint8: "U8"}
SGD = dict(lr=5e-2, momentum=0.9, nesterov=True, weight_decay=1e-2)
ADAGRAD = dict(lr=1e-2, eps=1e-8, weight_decay=1e-2)
MUON = dict(rate=2e-2, momentum=0.95)
OPTIMIZER = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
CLIP_NORM = 0.5
UNIT_ROUNDOFF = 2.0 ** -24  # of fp32
TRIALS = 64
OTHER_TRIALS = 16  # of other optimizers than AdamW


def gradient_deviation(roundings):
    """Standard deviation of an fp32 gradient from the true one, as a share of its tensor's largest element.

    `roundings` counts the rounding errors that add up in a gradient: the terms of all sums on the longest
    path through forward and backward. Each is at most u in size and they behave as independent random
    variables with mean zero, so their sum grows as sqrt(roundings) * u, in whatever order a CPU sums (Higham
    and Mary, 2019, "A New Approach to Probabilistic Rounding Error Analysis").
    """
    return math.sqrt(roundings) * UNIT_ROUNDOFF



def blob_of(tensor):
    flat = tensor.contiguous().view(-1)
    if tensor.dtype == torch.bfloat16:  # which NumPy does not have
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def write_safetensors(path, tensors, metadata):
    """https://huggingface.co/docs/safetensors: 8 bytes of length, a JSON header, the data."""
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in tensors.items():
        blob = blob_of(tensor)
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def as_the_reader_has_them(weights):
    """fp32 values, in double precision, with a gradient."""
    return {name: w.float().double().requires_grad_() for name, w in weights.items()}


def tokens_and_targets(text):
    """Both, as they are or, of a text [steps, batch, context + 1], with each next token as the target."""
    return text if isinstance(text, tuple) else (text[:, :, :-1], text[:, :, 1:])


def groups(w):
    return [{"params": [v for v in w.values() if v.dim() > 1]},
            {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}]


def adamw(w):
    return torch.optim.AdamW(groups(w), **OPTIMIZER)


def muon(parts_of):
    def make(w):
        parts = {name: parts_of(name) for name, v in w.items() if v.dim() > 1}
        hidden = [name for name, count in parts.items() if count > 0]
        return Muon([w[name] for name in hidden], [parts[name] for name in hidden],
                    [w[name] for name, count in parts.items() if count == 0],
                    [v for v in w.values() if v.dim() == 1], OPTIMIZER, **MUON)
    return make


def other_optimizers(parts_of):
    """Those besides AdamW, for write_training(). `parts_of` returns for the name of a matrix how many parts of it
    Muon orthogonalises: 0 for an embedding or a head, 3 for a GPT-2's packed queries, keys and values.
    """
    return {"sgd": lambda w: torch.optim.SGD(groups(w), **SGD),
            "adagrad": lambda w: torch.optim.Adagrad(groups(w), **ADAGRAD),
            "muon": muon(parts_of)}


class Training:
    """Losses, first gradients, norms and final weights of steps of an optimizer, a step for each of `text`
    (tokens_and_targets()), in double precision. With a `deviation`, each gradient that is not exactly zero is
    off by a random amount, as fp32 gradients are, and weights are rounded to fp32.
    """

    def __init__(self, initial, loss_of, text, make_optimizer=adamw, deviation=0.0, seed=0):
        tokens, targets = tokens_and_targets(text)
        w = {name: value.detach().clone().requires_grad_() for name, value in initial.items()}
        optimizer = make_optimizer(w)
        generator = torch.Generator().manual_seed(seed)
        losses, norms = [], []
        for step in range(len(tokens)):
            optimizer.zero_grad()
            loss = loss_of(w, tokens[step], targets[step])
            loss.backward()
            if step == 0:
                self.gradients = {name: value.grad.clone() for name, value in w.items()}
            if deviation:
                perturb(w, deviation, generator)
            norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP_NORM))
            optimizer.step()
            if deviation:
                for value in w.values():
                    value.data = value.data.float().double()
            losses.append(loss.detach())
        self.losses, self.norms = torch.stack(losses), torch.stack(norms)
        self.weights = {name: value.detach() for name, value in w.items()}


def perturb(w, deviation, generator):
    """The gradient of a token's row that does not occur is exactly zero in fp32, too."""
    for value in w.values():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        value.grad += torch.where(value.grad == 0, 0.0, noise * deviation * value.grad.abs().max())


def root_mean_square(trials, true):
    return torch.stack([trial - true for trial in trials]).square().mean(0).sqrt()


def trained(w, loss_of, text, make_optimizer, deviation, trial_count):
    """Returns a Training, and the tensors of its results."""
    true = Training(w, loss_of, text, make_optimizer)
    trials = [Training(w, loss_of, text, make_optimizer, deviation, seed + 1) for seed in range(trial_count)]
    out = {"losses": true.losses.float(), "norms": true.norms.float()}
    out.update({"final." + name: value.float() for name, value in true.weights.items()})
    for name, value in true.weights.items():
        out["deviation." + name] = root_mean_square([one.weights[name] for one in trials], value).float()
    out["deviation.losses"] = root_mean_square([one.losses for one in trials], true.losses).float()
    out["deviation.norms"] = root_mean_square([one.norms for one in trials], true.norms).float()
    return true, out


OTHERS = {"sgd.learningRate": str(SGD["lr"]), "sgd.momentum": str(SGD["momentum"]),
          "sgd.weightDecay": str(SGD["weight_decay"]), "adagrad.learningRate": str(ADAGRAD["lr"]),
          "adagrad.epsilon": str(ADAGRAD["eps"]), "adagrad.weightDecay": str(ADAGRAD["weight_decay"]),
          "muon.learningRate": str(OPTIMIZER["lr"]), "muon.weightDecay": str(OPTIMIZER["weight_decay"]),
          "muon.epsilon": str(OPTIMIZER["eps"]), "muon.matrixLearningRate": str(MUON["rate"]),
          "muon.matrixMomentum": str(MUON["momentum"])}


def write_training(path, w, loss_of, text, roundings, metadata, others):
    """Writes a Training with AdamW, and one with each of the other optimizers (other_optimizers()), whose tensors begin with its
    name. Values are stored as fp32, so that a comparison shows the error of the other side
    alone.

    How far fp32 training may end from this one can't be said by one number: where the first gradient of a
    weight is as small as its own rounding error, the first update of AdamW, g / (|g| + eps), can be anything
    between -1 and 1, and later gradients see that weight. So the same training is simulated with rounding
    errors, TRIALS or OTHER_TRIALS times. "deviation." holds the root mean square of the differences, for each weight, loss
    and norm.
    """
    deviation = gradient_deviation(roundings)
    true, results = trained(w, loss_of, text, adamw, deviation, TRIALS)
    tokens, targets = tokens_and_targets(text)
    out = {"tokens": tokens.int(), "targets": targets.int()}
    out.update({"initial." + name: value.detach().float() for name, value in w.items()})
    out.update({"gradient." + name: value.float() for name, value in true.gradients.items()})
    out.update(results)
    for optimizer, make in others.items():
        results = trained(w, loss_of, text, make, deviation, OTHER_TRIALS)[1]
        out.update({f"{optimizer}.{name}": value for name, value in results.items()})
    write_safetensors(path, out, {
        **{key: str(value) for key, value in metadata.items()},
        "learningRate": str(OPTIMIZER["lr"]), "beta1": str(OPTIMIZER["betas"][0]),
        "beta2": str(OPTIMIZER["betas"][1]), "epsilon": str(OPTIMIZER["eps"]),
        "weightDecay": str(OPTIMIZER["weight_decay"]), **OTHERS, "clipNorm": str(CLIP_NORM),
        "gradientDeviation": str(deviation), "torch": torch.__version__})
    print(f"{path}: losses {true.losses[0]:.4f} to {true.losses[-1]:.4f}, gradient norms "
          f"{true.norms.min():.3f} to {true.norms.max():.3f}, PyTorch {torch.__version__}")
