"""The formulas of docs/sharding.md: what each rank keeps and sends, for any model and mode, to the byte.

They follow from the shapes of the parameters alone, and share no code with what they are compared with.
"""
import collections

import sharding_modes

ALIGN = 16  # values: tensors and pieces begin at multiples of it
FLOAT = 4
VOCABULARY = 256  # of the tokenizer `bytes`; a model can have its own
STATES = 2  # of AdamW
BUCKET_BYTES = 4 << 20  # the default of spec.train.bucketBytes
OFFLOAD_PIECE_BYTES = 8 << 20
SQUARES_BYTES = 224  # the sum of squares for the norm, which ranks add up exactly
TOTALS_BYTES = 56  # a rank's loss, and whether it stops or saves

# Values of each rank, and the blocks that it consists of.
Unit = collections.namedtuple("Unit", "piece blocks")
Held = collections.namedtuple("Held", "parameters gradients optimizer gathered buffers offloaded")


def aligned(count, multiple=ALIGN):
    return -(-count // multiple) * multiple


def gpt_layer(width):
    return [width, width, 3 * width * width, 3 * width, width * width, width, width, width,
            4 * width * width, 4 * width, 4 * width * width, width]


def llama_layer(width, keys):
    hidden = aligned(8 * width // 3, 256)
    return [width, (width + 2 * keys) * width, width * width, width, 2 * hidden * width, hidden * width]


def is_tied(model):
    """Returns whether the head reads the embedding: by default, that of a gpt2 does."""
    family = model.get("family", "gpt2")
    return family != "mlp" and model.get("head", "tied" if family == "gpt2" else "untied") == "tied"


def blocks(model):
    """Returns the counts of the tensors of each block, without what the head shares with the embedding."""
    family, head = model.get("family", "gpt2"), []
    if family == "mlp":
        widths = [model["inputs"], *model["hidden"], model["outputs"]]
        return [[into * out, out] for into, out in zip(widths, widths[1:])]
    width = model["width"]
    table = model.get("vocabulary", VOCABULARY) * width
    if not is_tied(model):
        head = [table]
    if family == "llama":
        keys = width // model["heads"] * model.get("kvHeads", model["heads"])
        layer = llama_layer(width, keys)
        return [[table], *[layer] * model["layers"], [width, *head]]
    embedding = [table, model["context"] * width]
    return [embedding, *[gpt_layer(width)] * model["layers"], [width, width, *head]]


def sizes(model):
    """Returns the values of each block with the gaps between its tensors."""
    return [sum(map(aligned, block)) for block in blocks(model)]


def cut(model, unit_bytes):
    """Returns the blocks of each unit, ascending. A tied embedding is one alone."""
    counts = sizes(model)
    units, open_ = [], []
    for block in reversed(range(len(counts))):
        open_.insert(0, block)
        is_full = FLOAT * sum(counts[i] for i in open_) >= unit_bytes
        if is_full or block == 0 or (block == 1 and is_tied(model)):
            units.insert(0, open_)
            open_ = []
    return units


class Layout:
    """How the ranks of a group divide a model in a mode."""

    def __init__(self, model, mode, ranks):
        fields = sharding_modes.MODES[mode].fields
        self.sharding = fields.get("sharding", "none")
        self.offload = fields.get("offload", "none")
        self.exchange = fields.get("exchange", "allReduce")
        self.is_kept = fields.get("reshardAfterForward") is False
        self.ranks = ranks
        self.group = 1 if self.sharding == "none" else sharding_modes.shape(mode, ranks)[1]
        self.is_tied = is_tied(model)
        counts = sizes(model)
        self.last = len(counts) - 1
        self.units = [Unit(aligned(-(-sum(counts[i] for i in unit) // self.group)), unit)
                      for unit in cut(model, 0 if self.sharding == "parameters" else BUCKET_BYTES)]
        self.shard = sum(unit.piece for unit in self.units)  # Q
        self.whole = self.group * self.shard if self.group > 1 else sum(counts)  # P

    def count(self, unit):
        return unit.piece * self.group


def largest_pair(counts):
    return max(map(sum, zip(counts, [*counts[1:], 0])))


def gathered(layout):
    """G: two neighbouring blocks, where a tied head counts the embedding too."""
    if layout.is_kept:
        return layout.whole
    counts = [layout.count(unit) for unit in layout.units]
    if layout.is_tied:
        counts[-1] += counts[0]
    return largest_pair(counts)


def unit_gradients(layout):
    """U: two neighbouring units, and the place of a tied embedding."""
    counts = [layout.count(unit) for unit in layout.units]
    return counts[0] + largest_pair(counts[1:]) if layout.is_tied else largest_pair(counts)


def held(layout, rank):
    """Returns the bytes of a rank on its device, and of what it offloads."""
    stage = ("none", "optimizer", "gradients", "parameters").index(layout.sharding)
    shares = [layout.shard if stage >= first else layout.whole for first in (3, 2, 1)]
    if layout.exchange == "host" or (layout.exchange == "firstRank" and rank > 0):
        shares[2] = 0
    room, far, arrays = 0, 0, 0
    if layout.offload == "parameters":
        far, arrays, shares[0] = shares[0], 1, 0
    if layout.offload != "none":
        far, arrays = far + STATES * shares[2], arrays + STATES
        most = OFFLOAD_PIECE_BYTES // FLOAT // arrays // ALIGN * ALIGN
        room, shares[2] = 2 * arrays * min(most, aligned(shares[2])), 0
    together = (gathered(layout) if stage == 3 else 0) + (unit_gradients(layout) if stage >= 2 else 0)
    return Held(*(FLOAT * count for count in (shares[0], shares[1], STATES * shares[2], together, room, far)))


def times_gathered(layout, unit):
    """How often a micro-batch gathers a unit of `sharding: parameters`."""
    if layout.is_kept:
        return 1
    first = unit.blocks[0] == 0
    if first and layout.is_tied:
        return 2  # in the forward of the first block, and in that of the head, for whose backward it stays
    return 1 if first or unit.blocks[0] == layout.last else 2


def sent(layout, rank, micro_batches):
    """Returns the bytes that a rank sends in a step; of an all-reduce by all ranks, its equal part.

    Takes the algorithms that kAuto chooses on one host, or on two with as many ranks each, for models that are not
    tiny (agent/comm/collectives.h).
    """
    others = layout.ranks - 1
    totals = others * TOTALS_BYTES
    if layout.exchange == "host":
        return totals + others * SQUARES_BYTES
    if layout.exchange == "firstRank":
        model = FLOAT * layout.whole
        return totals + (others * (model + SQUARES_BYTES) if rank == 0 else model)
    if layout.sharding == "none":
        return totals + 2 * others * FLOAT * layout.whole / layout.ranks
    reductions = micro_batches if layout.sharding != "optimizer" else 1
    values = 0
    for unit in layout.units:
        gathers = 1 if layout.sharding != "parameters" else micro_batches * times_gathered(layout, unit)
        values += (reductions + gathers) * (layout.group - 1) * unit.piece
    replicas = layout.ranks // layout.group
    values += reductions * 2 * (replicas - 1) * layout.shard / replicas
    return totals + (layout.group - 1) * SQUARES_BYTES + FLOAT * values
