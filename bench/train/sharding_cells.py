"""The cells of sharding_matrix.py, in the order in which they run."""
import collections

import rank_kills

FAMILIES = ("gpt", "llama", "mlp")
RANKS = (1, 2, 4, 8)

# kind: training, resumed, moved or killed. whole: one micro-batch. then: the mode that continues, and its ranks.
Cell = collections.namedtuple("Cell", "kind family mode ranks whole then then_ranks phase",
                              defaults=(False, None, None, None))


def name_of(cell):
    text = f"{cell.kind}: {cell.family}, {cell.mode}, {cell.ranks} ranks"
    if cell.whole and cell.kind == "training":
        text += ", one micro-batch"
    if cell.phase:
        text += ", " + cell.phase
    return text + (f" -> {cell.then}, {cell.then_ranks} ranks" if cell.then else "")


def training_cells(options):
    for family in options.families:
        for ranks in options.ranks:
            for mode in options.modes:
                yield Cell("training", family, mode, ranks)
                if ranks == 2:
                    yield Cell("training", family, mode, ranks, True)


def resumed_cells(options):
    for i, mode in enumerate(options.modes):
        for j, then in enumerate(options.modes):
            yield Cell("resumed", options.families[(i + j) % len(options.families)], mode, 2, True, then, 2)


def moved_cells(options):
    """The ranks rotate, so that every pair of modes and every number of ranks are there."""
    ranks = [number for number in RANKS if number != 4]
    for i, mode in enumerate(options.modes):
        for j, then in enumerate(options.modes):
            yield Cell("moved", options.families[(i + j) % len(options.families)], mode, 4, False, then,
                       ranks[(i + j) % len(ranks)])


def killed_cells(options):
    for i, mode in enumerate(options.modes):
        for j, phase in enumerate(rank_kills.PHASES):
            family = options.families[(i + j) % len(options.families)]
            if phase == "finishing" and family == "mlp":
                family = options.families[0]  # an mlp has no sample, and is finished at once
            yield Cell("killed", family, mode, 4, phase=phase)


KINDS = {"training": training_cells, "resumed": resumed_cells, "moved": moved_cells, "killed": killed_cells}
