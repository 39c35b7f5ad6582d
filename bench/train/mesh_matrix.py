#!/usr/bin/env python3
"""Checks that every mesh of up to 8 ranks trains like the single process, and loads every other one's checkpoints.

  bench/train/mesh_matrix.py --build build --results FOLDER             # everything
  bench/train/mesh_matrix.py --build build --sample                     # a few cells of each kind
  bench/train/mesh_matrix.py --build build --results FOLDER --families gpt --ranks 2,4 --shardings none

Jobs run on this machine with `lockstep run`, in fp32 with one thread per process, 25 steps, accumulated
micro-batches, clipping and an epsilon of 1e-5. A mesh "t2 p4 d1" has 2 tensor-parallel ranks, 4 stages of a
pipeline, and 1 data-parallel rank; the models have 8 layers. Meshes with an even number of ranks from 4 on are
on two nodes if that leaves tensor-parallel ranks together. With "sequence" they also divide sequences. The cells:
- training: a mesh, a pipeline schedule, a sharding, sequences divided or not, and a family. Losses, and each parameter by its relative L2
  norm, differ by at most 1e-5 from the single process. Every job runs twice, with the same bits. The part of
  attention biases for keys is left out: its gradient is only rounding errors.
- schedules: all schedules of a mesh end with the same bits.
- resumed: half of the steps, then the rest in another job: the same bits as in one job.
- moved: a mesh saves; another one loads, and does one step with a learning rate of zero. All parameters have the
  same bits as in the checkpoint.
- killed: a rank is killed (SIGKILL) after the first checkpoint, and in the next round another one in the named
  phase. The job ends with the same bits as without kills.
- overlapping: PipeDream, with each rule for the versions of parameters: a job that runs twice, one that is resumed in the middle, and one
  that is killed as above have the same bits. (Unit tests compare it with a sequential program.)

Finished cells are lines of FOLDER/<SHA-256 of the worker>/cells.jsonl, and the next start skips those that
passed. Without FOLDER nothing is kept. Prints a line per cell; the exit code is 1 if a cell failed.
"""
import sys

import matrix_cells
import matrix_runs
import mesh_cells

STEPS = 25
LAYERS, VOCABULARY = 8, 1000  # an embedding larger than two layers


def model(way):
    """Two query heads share a head for keys and values, unless the model would be large. Where sequences are divided,
    all of them share one, which every tensor-parallel rank has."""
    heads = 2 * way.kv_heads if way.kv_heads <= 8 else way.kv_heads
    fields = {"layers": LAYERS, "width": heads * (4 if heads <= 16 else 2), "heads": heads, "context": way.context,
              "vocabulary": VOCABULARY}
    if way.family == "llama":
        fields |= {"family": "llama", "kvHeads": 1 if way.rows else way.kv_heads, "hiddenWidth": 16 * way.kv_heads}
    return fields


def micro_batch(per_rank, mesh):
    """Returns the largest micro-batch that gives each stage three of them."""
    return max((size for size in range(1, per_rank + 1)
                if per_rank % (size * mesh_cells.turn_of(mesh)) == 0 and per_rank // size >= 3 * mesh.pipeline),
               default=1)


def setup(way):
    mesh = way.mesh
    nodes = 2 if mesh_cells.ranks_of(mesh) >= 4 and mesh.pipeline * mesh.data % 2 == 0 else 1
    parallelism = {"tensor": mesh.tensor, "pipeline": mesh.pipeline, "sharding": way.sharding}
    overlaps = way.schedule in mesh_cells.OVERLAPPING
    if overlaps:
        parallelism |= {"pipelineSchedule": "pipedream"} | mesh_cells.OVERLAPPING[way.schedule]
    elif way.schedule:
        parallelism["pipelineSchedule"] = way.schedule
    if way.schedule == mesh_cells.INTERLEAVED:
        parallelism["virtualStages"] = mesh_cells.CHUNKS
    if way.rows and way.mesh.tensor > 1:
        parallelism["sequenceParallel"] = True
    name = f"{mesh_cells.name_of_way(way)} kv{way.kv_heads} batch{way.samples} context{way.context}"
    batch = {"global": way.samples, "micro": micro_batch(way.samples // mesh.data, mesh)}
    fields = model(way) | ({"head": "untied"} if overlaps else {})
    # With 16 heads, rounding errors are amplified at this rate, too: one process with another micro-batch differs by 4e-7.
    rate = matrix_runs.LEARNING_RATE / (2 if fields["heads"] >= 16 else 1)
    if rate != matrix_runs.LEARNING_RATE:
        name += f" rate{rate:g}"
    return matrix_runs.Setup(name, fields, batch, nodes, mesh_cells.ranks_of(mesh) // nodes, parallelism,
                             0 if overlaps else matrix_runs.CLIP, rate)


def check_training(runs, cell):
    output = matrix_runs.run_twice(runs, setup(cell.way))
    single = runs.run(setup(cell.way._replace(mesh=mesh_cells.Mesh(1, 1, 1), schedule="", sharding="none")))
    return {"from one process": matrix_runs.expect_close("one process", runs, output, single, matrix_runs.FROM_ONE)}


def check_schedules(runs, cell):
    schedules = mesh_cells.schedules(cell.way.mesh, cell.way.sharding)
    first, *others = (runs.run(setup(cell.way._replace(schedule=name))) for name in schedules)
    for name, other in zip(schedules[1:], others):
        matrix_runs.expect_same_runs(f"{schedules[0]} and {name}", other, first)
    return {}


def check_resumed(runs, cell):
    same = setup(cell.way)
    return matrix_runs.check_resumed("one job", runs, same, same, same)


def check_moved(runs, cell):
    return matrix_runs.check_moved(runs, setup(cell.way), setup(cell.then))


def check_killed(runs, cell):
    return matrix_runs.check_killed(runs, setup(cell.way), cell.phase, mesh_cells.name_of(cell))


def check_overlapping(runs, cell):
    same = setup(cell.way)
    matrix_runs.run_twice(runs, same)
    matrix_runs.check_resumed("one job", runs, same, same, same)
    return matrix_runs.check_killed(runs, same, cell.phase, mesh_cells.name_of(cell))


MATRIX = matrix_cells.Matrix(
    kinds=mesh_cells.KINDS,
    checks={"training": check_training, "schedules": check_schedules, "resumed": check_resumed,
            "moved": check_moved, "killed": check_killed, "overlapping": check_overlapping},
    name_of=mesh_cells.name_of, steps=STEPS,
    known={"families": mesh_cells.FAMILIES, "ranks": mesh_cells.RANKS, "shardings": mesh_cells.SHARDINGS})


def main():
    arguments = matrix_cells.parser(MATRIX, __doc__)
    return matrix_cells.run(MATRIX, matrix_cells.parse(MATRIX, arguments))


if __name__ == "__main__":
    sys.exit(main())
