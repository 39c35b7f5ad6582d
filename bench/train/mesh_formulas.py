"""The formulas of docs/parallelism.md: what each rank of a mesh keeps and sends, to the byte.

For a GPT-2 with a tied embedding, in fp32 and without sharding. They follow from the shapes of tensors alone, and share
no code with what they are compared with.
"""
import collections

import schedule_picture
import sharding_formulas
from sharding_formulas import FLOAT, SQUARES_BYTES, STATES, TOTALS_BYTES, aligned

SAMPLES, MICRO = 32, 2  # of a step, of a micro-batch
LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 8, 64, 8, 64, sharding_formulas.VOCABULARY
HIDDEN = 4 * WIDTH
MODEL = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "context": CONTEXT}
ROWS = MICRO * CONTEXT
ACTIVATION = FLOAT * ROWS * WIDTH  # bytes of the residual stream of a micro-batch
PLACE = 64  # values: activations begin at multiples of it
DIRECT_RANKS_MAX = 8  # up to so many ranks send small tensors directly to each other
# Which tensors of sharding_formulas.gpt_layer() the ranks of a tensor group divide.
DIVIDED = (0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0)
NORM_TENSORS = 4  # of a layer

# rows: whether sequence parallelism divides the rows of activations.
Mesh = collections.namedtuple("Mesh", "pipeline data tensor schedule rows", defaults=("1f1b", False))


def size(mesh):
    return mesh.pipeline * mesh.data * mesh.tensor


def micro_batches(mesh):
    return SAMPLES // mesh.data // MICRO


def is_first(stage):
    return stage == 0


def is_last(mesh, stage):
    return stage == mesh.pipeline - 1


def parameter_bytes(mesh, stage):
    """Returns the bytes of the parameters that a rank of a stage holds, with the gaps between its tensors."""
    layer = [count // (mesh.tensor if divided else 1)
             for count, divided in zip(sharding_formulas.gpt_layer(WIDTH), DIVIDED)]
    tensors = layer * (LAYERS // mesh.pipeline)
    if is_first(stage):
        tensors.append(CONTEXT * WIDTH)
    if is_last(mesh, stage):
        tensors += [WIDTH, WIDTH]
    if is_first(stage) or is_last(mesh, stage):  # the head reads the embedding
        tensors.append(VOCABULARY * WIDTH // mesh.tensor)
    return FLOAT * sum(map(aligned, tensors))


def state_bytes(mesh, stage):
    """Returns the bytes of parameters, gradients and the states of AdamW."""
    return (2 + STATES) * parameter_bytes(mesh, stage)


def kept_rows(mesh):
    return ROWS // (mesh.tensor if mesh.rows else 1)


def micro_batch_values(mesh, stage):
    """Returns the values that a stage keeps of a micro-batch between forward and backward."""
    rows, shards = kept_rows(mesh), mesh.tensor
    stream = rows * WIDTH
    layer = [stream] * 4 + [3 * ROWS * WIDTH // shards, ROWS * WIDTH // shards]  # qkv, attention
    layer += [ROWS * HIDDEN // shards] * 2 + [ROWS * HEADS // shards] + [rows] * 4  # statistics
    tensors = layer * (LAYERS // mesh.pipeline) + [stream]
    if is_last(mesh, stage):
        tensors += [stream, ROWS * VOCABULARY // shards, ROWS, rows, rows]
        tensors += [ROWS] * 3 if shards > 1 else []
    return sum(aligned(count, PLACE) for count in tensors)


def activation_bytes(mesh, stage):
    """Returns the bytes of all activations, of their gradients, and of messages between stages."""
    in_flight = schedule_picture.in_flight(mesh.schedule, mesh.pipeline, stage, micro_batches(mesh))
    stream = kept_rows(mesh) * WIDTH
    scratch = stream + ROWS * WIDTH + ROWS * HIDDEN // mesh.tensor + (ROWS * WIDTH if mesh.rows else 0)
    channels = 2 * (2 - is_first(stage) - is_last(mesh, stage))
    return FLOAT * (in_flight * micro_batch_values(mesh, stage) + scratch + channels * 2 * stream)


def all_reduce(ranks, bytes_):
    return 2 * (ranks - 1) / ranks * bytes_


def small_all_reduce(ranks, bytes_):
    return (ranks - 1) * bytes_ if ranks <= DIRECT_RANKS_MAX else all_reduce(ranks, bytes_)


def tensor_bytes(mesh, stage):
    """Returns the bytes that a rank sends to its tensor-parallel peers for a micro-batch."""
    layers, last = LAYERS // mesh.pipeline, is_last(mesh, stage)
    losses = last * 3 * small_all_reduce(mesh.tensor, FLOAT * ROWS)
    if not mesh.rows:
        return (4 * layers + is_first(stage) + last) * all_reduce(mesh.tensor, ACTIVATION) + losses
    times = 10 * layers + 2 * is_first(stage) + 2 * last  # all-gathers and reduce-scatters
    return times * (mesh.tensor - 1) / mesh.tensor * ACTIVATION + losses


def stage_bytes(mesh, stage):
    """Returns the bytes that a rank sends to neighbouring stages for a micro-batch."""
    return (2 - is_first(stage) - is_last(mesh, stage)) * FLOAT * kept_rows(mesh) * WIDTH


def step_bytes(mesh, stage):
    """Returns the bytes that a rank sends once in a step: gradients, their squares, the loss."""
    last, tied = is_last(mesh, stage), 0
    if mesh.pipeline > 1 and (is_first(stage) or last):
        tied = FLOAT * VOCABULARY * WIDTH // mesh.tensor
    norms = 0
    if mesh.rows:
        tensors = NORM_TENSORS * LAYERS // mesh.pipeline + 2 * last
        norms = tensors * small_all_reduce(mesh.tensor, FLOAT * WIDTH)
    squares = small_all_reduce(mesh.tensor, SQUARES_BYTES) + small_all_reduce(mesh.pipeline, SQUARES_BYTES)
    return (all_reduce(mesh.data, parameter_bytes(mesh, stage)) + tied + norms + squares +
            (size(mesh) - 1) * TOTALS_BYTES)


def sent(mesh, stage):
    """Returns the bytes that a rank of a stage sends in a step."""
    return micro_batches(mesh) * (tensor_bytes(mesh, stage) + stage_bytes(mesh, stage)) + step_bytes(mesh, stage)


def idle_share(mesh):
    return schedule_picture.idle_share(mesh.schedule, mesh.pipeline, micro_batches(mesh))
