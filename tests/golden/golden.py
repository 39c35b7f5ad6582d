"""What the scripts here share: training as PyTorch does it, and safetensors files."""
import json
import struct

import torch

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32",
          torch.uint8: "U8"}
OPTIMIZER = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
CLIP_NORM = 0.5


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


def write_training(path, w, loss_of, text, metadata):
    """Losses, the first gradients, norms and the final weights of steps of AdamW, a step for each of
    `text` [steps, batch, context + 1]. All is computed in double precision and stored as fp32, so that
    whoever compares sees its own error.
    """
    tokens, targets = text[:, :, :-1], text[:, :, 1:]
    out = {"tokens": tokens.int(), "targets": targets.int()}
    out.update({"initial." + name: value.detach().float() for name, value in w.items()})
    optimizer = torch.optim.AdamW([
        {"params": [v for v in w.values() if v.dim() > 1]},
        {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}], **OPTIMIZER)
    losses, norms = [], []
    for step in range(len(text)):
        optimizer.zero_grad()
        loss = loss_of(w, tokens[step], targets[step])
        loss.backward()
        if step == 0:
            out.update({"gradient." + name: value.grad.float() for name, value in w.items()})
        norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP_NORM))
        optimizer.step()
        losses.append(loss.detach())
    out["losses"] = torch.stack(losses).float()
    out["norms"] = torch.stack(norms).float()
    out.update({"final." + name: value.detach().float() for name, value in w.items()})
    write_safetensors(path, out, {
        **{key: str(value) for key, value in metadata.items()},
        "learningRate": str(OPTIMIZER["lr"]), "beta1": str(OPTIMIZER["betas"][0]),
        "beta2": str(OPTIMIZER["betas"][1]), "epsilon": str(OPTIMIZER["eps"]),
        "weightDecay": str(OPTIMIZER["weight_decay"]), "clipNorm": str(CLIP_NORM),
        "torch": torch.__version__})
    print(f"{path}: losses {losses[0]:.4f} to {losses[-1]:.4f}, gradient norms "
          f"{min(norms):.3f} to {max(norms):.3f}, PyTorch {torch.__version__}")
