#!/usr/bin/env python3
"""Checks that every way of sharding trains like the single process, and loads every other one's checkpoints.

  bench/train/sharding_matrix.py --build build --results FOLDER             # everything
  bench/train/sharding_matrix.py --build build --sample                     # a few cells of each kind
  bench/train/sharding_matrix.py --build build --results FOLDER --families mlp --ranks 2,4 --modes 'none; host'

Jobs run on this machine with `lockstep run`, in fp32 with one thread per process, 40 steps, accumulated
micro-batches, clipping and an epsilon of 1e-5. The cells:
- training: a family, a mode of sharding_modes.py, and a number of ranks. Losses, and each parameter by its
  relative L2 norm, differ by at most 1e-5 from the single process and by at most 1e-6 from `none` with as many
  ranks. With 2 ranks there is also a cell with one micro-batch, whose bits are those of `none`. Every job runs
  twice, with the same bits. The part of attention biases for keys is left out: its gradient is only rounding
  errors.
- resumed: 2 ranks and one micro-batch; one mode trains half of the steps, another one the rest. Parameters and
  the optimizer's states are the same bits as those of `none` throughout.
- moved: 4 ranks save; another number of ranks loads in another mode, and does one step with a learning rate of
  zero. All parameters have the same bits as in the checkpoint.
- killed: 4 ranks; a rank is killed (SIGKILL) after the first checkpoint, and in the next round another one in the named
  phase. The job ends with the same bits as without kills.

Finished cells are lines of FOLDER/<SHA-256 of the worker>/cells.jsonl, and the next start skips those that
passed. Without FOLDER nothing is kept. Prints a line per cell; the exit code is 1 if a cell failed.
"""
import sys

import matrix_cells
import matrix_runs
import sharding_cells
import sharding_modes
from matrix_runs import FROM_ONE, Setup

STEPS = 40
GLOBAL = 16
FROM_NONE = 1e-6
TEXT_MODEL = {"layers": 2, "width": 48, "heads": 4, "context": 32}
MODELS = {
    "gpt": TEXT_MODEL,
    "llama": TEXT_MODEL | {"family": "llama", "kvHeads": 2, "hiddenWidth": 128},
    "mlp": {"family": "mlp", "inputs": matrix_runs.INPUTS, "hidden": [72, 40], "outputs": matrix_runs.OUTPUTS,
            "activation": "gelu"},
}


def setup(runs, family, mode, ranks, whole=False):
    """whole: each rank's part of a batch is one micro-batch."""
    nodes, per_node = sharding_modes.shape(mode, ranks)
    per_rank = GLOBAL // ranks
    batch = {"global": GLOBAL, "micro": per_rank if whole else max(1, per_rank // 4)}
    name = f"{family}-{mode}-{ranks}-{'whole' if whole else 'accumulated'}"
    return Setup(name, MODELS[family], batch, nodes, per_node, sharding_modes.parallelism(mode, runs.scratch))


def check_training(runs, cell):
    output = matrix_runs.run_twice(runs, setup(runs, cell.family, cell.mode, cell.ranks, cell.whole))
    single = runs.run(setup(runs, cell.family, "none", 1))
    found = {"from one process": matrix_runs.expect_close("one process", runs, output, single, FROM_ONE)}
    replicated = runs.run(setup(runs, cell.family, "none", cell.ranks, cell.whole))
    found["from none"] = matrix_runs.expect_close("none", runs, output, replicated, FROM_NONE)
    if cell.whole:
        matrix_runs.expect_same_runs("none", output, replicated)
    return found


def check_resumed(runs, cell):
    first, then, throughout = (setup(runs, cell.family, mode, 2, True) for mode in (cell.mode, cell.then, "none"))
    return matrix_runs.check_resumed("none throughout", runs, first, then, throughout)


def check_moved(runs, cell):
    return matrix_runs.check_moved(runs, setup(runs, cell.family, cell.mode, 4),
                                   setup(runs, cell.family, cell.then, cell.then_ranks))


def check_killed(runs, cell):
    return matrix_runs.check_killed(runs, setup(runs, cell.family, cell.mode, cell.ranks), cell.phase,
                                    sharding_cells.name_of(cell))


MATRIX = matrix_cells.Matrix(
    kinds=sharding_cells.KINDS,
    checks={"training": check_training, "resumed": check_resumed, "moved": check_moved, "killed": check_killed},
    name_of=sharding_cells.name_of, steps=STEPS,
    known={"families": sharding_cells.FAMILIES, "ranks": sharding_cells.RANKS})


def main():
    arguments = matrix_cells.parser(MATRIX, __doc__)
    arguments.add_argument("--modes", type=sharding_modes.chosen, default=list(sharding_modes.MODES),
                           help="separated by semicolons: " + "; ".join(sharding_modes.MODES))
    return matrix_cells.run(MATRIX, matrix_cells.parse(MATRIX, arguments))


if __name__ == "__main__":
    sys.exit(main())
