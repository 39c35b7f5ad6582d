"""The meshes and the cells of mesh_matrix.py, in the order in which they run."""
import collections
import itertools
import math

import rank_kills

RANKS = tuple(range(1, 9))
FAMILIES = ("gpt", "llama")
SCHEDULES = ("naive", "gpipe", "1f1b")
SPLIT, SPLIT_SHARDINGS = "zerobubble", ("none", "optimizer")  # it holds gradients back
INTERLEAVED, CHUNKS, CHUNKED_STAGES_MAX = "interleaved", 2, 4  # the models have 8 layers
# PipeDream: the rules of its versions, by the names of their cells.
OVERLAPPING = {"pipedream": {}, "pipedream vertical": {"verticalSync": True}, "pipedream latest": {"weightStashing": False}}
SHARDINGS = ("none", "optimizer", "gradients", "parameters")
KV_HEADS, SAMPLES, CONTEXT = 4, 24, 16  # where the mesh can divide them

Mesh = collections.namedtuple("Mesh", "tensor pipeline data")
# schedule: "" with one stage; rows: "sequence" where tensor-parallel ranks divide sequences, else ""; kv_heads,
# samples, context: the dimensions that decide how a mesh may divide the work.
Way = collections.namedtuple("Way", "family mesh schedule sharding rows kv_heads samples context")
# kind: training, schedules, resumed, moved, killed or overlapping; then: the way that loads a checkpoint.
Cell = collections.namedtuple("Cell", "kind way then phase", defaults=(None, None))


def ranks_of(mesh):
    return math.prod(mesh)


def name_of_way(way):
    mesh = f"t{way.mesh.tensor} p{way.mesh.pipeline} d{way.mesh.data}"
    return " ".join(filter(None, (way.family, mesh, way.schedule, way.sharding, way.rows)))


def name_of(cell):
    text = f"{cell.kind}: {name_of_way(cell.way)}"
    if cell.phase:
        text += ", " + cell.phase
    return text + (f" -> {name_of_way(cell.then)}" if cell.then else "")


def meshes(options):
    """Returns all meshes with the chosen numbers of ranks, the smallest ones first."""
    return [mesh for ranks in options.ranks for mesh in map(Mesh._make, itertools.product(RANKS, repeat=3))
            if ranks_of(mesh) == ranks]


def dimensions(*some):
    """Returns heads for keys and values, samples in a batch, and a context, that all of some meshes can divide."""
    tensor = math.lcm(*(mesh.tensor for mesh in some))
    samples = math.lcm(*(mesh.data * turn_of(mesh) for mesh in some))
    return (KV_HEADS if KV_HEADS % tensor == 0 else tensor,
            SAMPLES if SAMPLES % samples == 0 else samples * math.ceil(20 / samples),
            tensor * math.ceil(CONTEXT / tensor))


def is_chunked(mesh):
    """Returns whether an interleaved pipeline has layers enough for every chunk."""
    return 1 < mesh.pipeline <= CHUNKED_STAGES_MAX


def turn_of(mesh):
    """Returns what the number of micro-batches is a multiple of, with every schedule of the mesh."""
    return mesh.pipeline if is_chunked(mesh) else 1


def schedules(mesh, sharding):
    if mesh.pipeline == 1:
        return ("",)
    return SCHEDULES + (SPLIT,) * (sharding in SPLIT_SHARDINGS) + (INTERLEAVED,) * is_chunked(mesh)


def shardings(mesh, options):
    """With one data-parallel rank nothing is divided, so at most two ways are enough."""
    chosen = options.shardings
    return chosen if mesh.data > 1 else [name for name in chosen if name in ("none", "parameters")] or chosen[:1]


def rows(mesh):
    return ("", "sequence") if mesh.tensor > 1 else ("",)


def ways(mesh, options):
    """Returns all ways to train on a mesh."""
    return [Way(family, mesh, schedule, sharding, split, *dimensions(mesh))
            for sharding in shardings(mesh, options) for schedule in schedules(mesh, sharding) for split in rows(mesh)
            for family in options.families]


def training_cells(options):
    return [Cell("training", way) for mesh in meshes(options) for way in ways(mesh, options)]


def schedules_cells(options):
    """One cell for all schedules of a mesh."""
    return [Cell("schedules", way._replace(schedule="")) for mesh in meshes(options) if mesh.pipeline > 1
            for way in ways(mesh, options) if way.schedule == SCHEDULES[0]]


def resumed_cells(options):
    return [cell._replace(kind="resumed") for cell in training_cells(options)]


def moved_cells(options):
    """Every pair of meshes; family, schedule, sharding and divided sequences rotate."""
    turns = itertools.count()
    for mesh, then in itertools.permutations(meshes(options), 2):
        turn = next(turns)
        same = dimensions(mesh, then)
        first, second = (some[(turn * step) % len(some)]._replace(kv_heads=same[0], samples=same[1], context=same[2])
                         for some, step in ((ways(mesh, options), 1), (ways(then, options), 5)))
        yield Cell("moved", first, second._replace(family=first.family, rows=first.rows))


def killed_cells(options):
    """Every mesh of two ranks and more, in every phase; family, schedule and sharding rotate."""
    several = [mesh for mesh in meshes(options) if ranks_of(mesh) > 1]
    for turn, (mesh, phase) in enumerate(itertools.product(several, rank_kills.PHASES)):
        some = ways(mesh, options)
        yield Cell("killed", some[turn % len(some)], phase=phase)


def overlapping_cells(options):
    """Every mesh with stages and all rules of versions; family and the phase of a kill rotate."""
    staged = [mesh for mesh in meshes(options) if mesh.pipeline > 1]
    for turn, (mesh, rules) in enumerate(itertools.product(staged, OVERLAPPING)):
        way = Way(options.families[turn % len(options.families)], mesh, rules, "none", "", *dimensions(mesh))
        yield Cell("overlapping", way, phase=list(rank_kills.PHASES)[turn % len(rank_kills.PHASES)])


KINDS = {"training": training_cells, "schedules": schedules_cells, "resumed": resumed_cells, "moved": moved_cells,
         "killed": killed_cells, "overlapping": overlapping_cells}
