"""The formulas of docs/parallelism.md: what each rank of a mesh keeps and sends, to the byte.

For a GPT-2 in fp32 and without sharding. They follow from the shapes of tensors alone, and share no code with what they
are compared with.
"""
import collections
import itertools

import schedule_picture
import sharding_formulas
from sharding_formulas import FLOAT, SQUARES_BYTES, STATES, TOTALS_BYTES, aligned

PLACE = 64  # values: activations begin at multiples of it
DIRECT_RANKS_MAX = 8  # up to so many ranks send small tensors directly to each other
# Which tensors of sharding_formulas.gpt_layer() the ranks of a tensor group divide.
DIVIDED = (0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0)
NORM_TENSORS = 4  # of a layer

# samples: of a step; micro: samples of a micro-batch.
Sizes = collections.namedtuple("Sizes", "layers width heads context vocabulary samples micro is_tied",
                               defaults=(True,))
SMALL = Sizes(8, 64, 8, 64, sharding_formulas.VOCABULARY, 32, 2)
SMALL_UNTIED = SMALL._replace(is_tied=False)
PIPEDREAM = "pipedream"
# rows: whether sequence parallelism divides the rows of activations; chunks: of the model on each stage.
Mesh = collections.namedtuple("Mesh", "pipeline data tensor schedule rows sizes chunks",
                              defaults=("1f1b", False, SMALL, 1))


def model_of(sizes):
    """Returns spec.train.model."""
    return {"layers": sizes.layers, "width": sizes.width, "heads": sizes.heads, "context": sizes.context,
            "vocabulary": sizes.vocabulary, "head": "tied" if sizes.is_tied else "untied"}


def size(mesh):
    return mesh.pipeline * mesh.data * mesh.tensor


def micro_batches(mesh):
    return mesh.sizes.samples // mesh.data // mesh.sizes.micro


def rows_of(mesh):
    """Returns the tokens of a micro-batch."""
    return mesh.sizes.micro * mesh.sizes.context


def activation(mesh):
    """Returns the bytes of the residual stream of a micro-batch."""
    return FLOAT * rows_of(mesh) * mesh.sizes.width


def is_first(stage):
    return stage == 0


def is_last(mesh, stage):
    return stage == mesh.pipeline - 1


def head_layers(sizes):
    """Returns how long the head takes, in layers."""
    return sizes.vocabulary / (12 * sizes.width + sizes.context)


def part_layers(sizes, parts):
    """Returns the layers of each part of the model: the slowest one takes the least time, and the last has the head."""
    if parts == 1:
        return [sizes.layers]

    def slowest(last):
        return max(-(-(sizes.layers - last) // (parts - 1)), last + head_layers(sizes))

    last = min(range(sizes.layers // parts, 0, -1), key=slowest)
    each, more = divmod(sizes.layers - last, parts - 1)
    return [*(each + (part < more) for part in range(parts - 1)), last]


def layers_of(mesh, stage):
    """Returns the layers of all chunks of a stage."""
    return sum(itertools.islice(part_layers(mesh.sizes, mesh.pipeline * mesh.chunks), stage, None, mesh.pipeline))


def parameter_bytes(mesh, stage):
    """Returns the bytes of the parameters that a rank of a stage holds, with the gaps between its tensors."""
    width, embedding = mesh.sizes.width, mesh.sizes.vocabulary * mesh.sizes.width // mesh.tensor
    layer = [count // (mesh.tensor if divided else 1)
             for count, divided in zip(sharding_formulas.gpt_layer(width), DIVIDED)]
    tensors = layer * layers_of(mesh, stage)
    if is_first(stage):
        tensors += [embedding, mesh.sizes.context * width]
    if is_last(mesh, stage):
        tensors += [width, width]
    if is_last(mesh, stage) and not (is_first(stage) and mesh.sizes.is_tied):  # a tied head reads the embedding
        tensors.append(embedding)
    return FLOAT * sum(map(aligned, tensors))


def versions(mesh, stage):
    """Returns how many versions of its parameters a stage keeps."""
    if mesh.schedule != PIPEDREAM:
        return 1
    return 1 + -(-(mesh.pipeline - 1 - stage) // micro_batches(mesh))


def state_bytes(mesh, stage):
    """Returns the bytes of parameters, gradients and the states of AdamW."""
    return (versions(mesh, stage) + 1 + STATES) * parameter_bytes(mesh, stage)


def kept_rows(mesh):
    return rows_of(mesh) // (mesh.tensor if mesh.rows else 1)


def micro_batch_values(mesh, stage):
    """Returns the values that a stage keeps of a micro-batch between forward and backward."""
    rows, shards, all_rows, width = kept_rows(mesh), mesh.tensor, rows_of(mesh), mesh.sizes.width
    stream = rows * width
    layer = [stream] * 4 + [3 * all_rows * width // shards, all_rows * width // shards]  # qkv, attention
    layer += [all_rows * 4 * width // shards] * 2 + [all_rows * mesh.sizes.heads // shards] + [rows] * 4  # statistics
    tensors = layer * layers_of(mesh, stage) + [stream]
    if is_last(mesh, stage):
        tensors += [stream, all_rows, rows, rows]
    return sum(aligned(count, PLACE) for count in tensors)


def scratch_values(mesh, stage):
    """Returns the values that all micro-batches of a stage share: gradients of activations, and the logits."""
    whole, shards, last = rows_of(mesh) * mesh.sizes.width, mesh.tensor, is_last(mesh, stage)
    logits = rows_of(mesh) * mesh.sizes.vocabulary // shards if last else 0
    sums = [rows_of(mesh)] * 3 if last and shards > 1 else []
    wide = max(4 * whole // shards, logits)  # logits are gone before the first layer's backward
    tensors = [kept_rows(mesh) * mesh.sizes.width, whole, wide, *sums, whole if mesh.rows else 0]
    return sum(aligned(count, PLACE) for count in tensors)


def in_flight_of(mesh, stage):
    """Returns how many micro-batches at most are between forward and backward on a stage."""
    if mesh.schedule == PIPEDREAM:
        return mesh.pipeline - stage  # whatever a step has, as the next one follows
    return schedule_picture.in_flight(mesh.schedule, mesh.pipeline, stage, micro_batches(mesh))


def activation_bytes(mesh, stage):
    """Returns the bytes of all activations, of their gradients, and of messages between stages."""
    in_flight = in_flight_of(mesh, stage)
    stream = kept_rows(mesh) * mesh.sizes.width
    channels = 2 * (2 - is_first(stage) - is_last(mesh, stage))
    return FLOAT * (in_flight * micro_batch_values(mesh, stage) + scratch_values(mesh, stage) + channels * 2 * stream)


def all_reduce(ranks, bytes_):
    return 2 * (ranks - 1) / ranks * bytes_


def small_all_reduce(ranks, bytes_):
    return (ranks - 1) * bytes_ if ranks <= DIRECT_RANKS_MAX else all_reduce(ranks, bytes_)


def tensor_bytes(mesh, stage):
    """Returns the bytes that a rank sends to its tensor-parallel peers for a micro-batch."""
    layers, last = layers_of(mesh, stage), is_last(mesh, stage)
    losses = last * 3 * small_all_reduce(mesh.tensor, FLOAT * rows_of(mesh))
    if not mesh.rows:
        return (4 * layers + is_first(stage) + last) * all_reduce(mesh.tensor, activation(mesh)) + losses
    times = 10 * layers + 2 * is_first(stage) + 2 * last  # all-gathers and reduce-scatters
    return times * (mesh.tensor - 1) / mesh.tensor * activation(mesh) + losses


def stage_bytes(mesh, stage):
    """Returns the bytes that a rank sends to neighbouring stages for a micro-batch."""
    messages = 2 * mesh.chunks - is_first(stage) - is_last(mesh, stage)
    return messages * FLOAT * kept_rows(mesh) * mesh.sizes.width


def tied_bytes(mesh, stage):
    """Returns the bytes of the embedding's gradients that the first and the last stage exchange in a step."""
    if mesh.pipeline == 1 or not mesh.sizes.is_tied or not (is_first(stage) or is_last(mesh, stage)):
        return 0
    return FLOAT * mesh.sizes.vocabulary * mesh.sizes.width // mesh.tensor


def step_bytes(mesh, stage):
    """Returns the bytes that a rank sends once in a step: gradients, their squares, the loss."""
    norms = 0
    if mesh.rows:
        tensors = NORM_TENSORS * layers_of(mesh, stage) + 2 * is_last(mesh, stage)
        norms = tensors * small_all_reduce(mesh.tensor, FLOAT * mesh.sizes.width)
    squares = small_all_reduce(mesh.tensor, SQUARES_BYTES)
    if mesh.schedule != PIPEDREAM:
        squares += small_all_reduce(mesh.pipeline, SQUARES_BYTES)
    return (all_reduce(mesh.data, parameter_bytes(mesh, stage)) + tied_bytes(mesh, stage) + norms + squares +
            (size(mesh) - 1) * TOTALS_BYTES)


def sent(mesh, stage):
    """Returns the bytes that a rank of a stage sends in a step."""
    return micro_batches(mesh) * (tensor_bytes(mesh, stage) + stage_bytes(mesh, stage)) + step_bytes(mesh, stage)


def idle_share(mesh):
    """Returns the part of the time in which stages wait, but not while PipeDream's pipeline fills or empties."""
    if mesh.schedule == PIPEDREAM:
        return 0
    return schedule_picture.idle_share(mesh.schedule, mesh.pipeline, micro_batches(mesh))
