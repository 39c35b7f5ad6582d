"""Command line and results of a matrix of jobs: sharding_matrix.py and mesh_matrix.py.

A cell is a namedtuple with a `kind`. Finished cells are lines of FOLDER/<SHA-256 of the worker>/cells.jsonl,
and the next start skips those that passed.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import random
import tempfile
import time

import local_job
import matrix_runs

# kinds: name -> function that returns its cells, from the options; checks: name -> check of a cell, from the runs
# and the cell; known: option -> its values, of which a user may name some.
Matrix = collections.namedtuple("Matrix", "kinds checks name_of steps known")


def passed_before(path):
    """Returns the names of cells that passed; a line that was cut off counts as none."""
    names = set()
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if result["passed"]:
            names.add(result["cell"])
    return names


def summary(found):
    return ", ".join(f"{what}: losses {value['loss']:.1e}, {value['tensor']} {value['parameters']:.1e}"
                     for what, value in found.items()) or "same bits"


def run_cell(matrix, runs, cell, results):
    """Runs a cell and stores its result. Returns whether it passed."""
    begin = time.monotonic()
    name = matrix.name_of(cell)
    found, problem = {}, None
    try:
        found = matrix.checks[cell.kind](runs, cell)
    except (matrix_runs.Wrong, local_job.JobFailed) as error:
        problem = str(error)
    result = {"cell": name, "passed": problem is None, "seconds": round(time.monotonic() - begin, 2)}
    result |= {"differences": found} if problem is None else {"problem": problem}
    with open(results, "a") as file:
        file.write("\n" * (file.tell() > 0 and not results.read_bytes().endswith(b"\n")) + json.dumps(result) + "\n")
    text = summary(found) if problem is None else "FAILED: " + problem.replace("\n", " ")[:600]
    print(f"{name}: {text} ({result['seconds']:.1f} s)", flush=True)
    return problem is None


def split(text):
    return [item.strip() for item in text.split(",") if item.strip()]


def parser(matrix, description):
    """Returns a parser of the options that all matrices share: one for each of matrix.known, and more."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("--build", default="build")
    found.add_argument("--results", type=pathlib.Path, help="folder for finished cells and the runs they need")
    for name, known in (("kinds", matrix.kinds), *matrix.known.items()):
        found.add_argument(f"--{name}", type=split, default=list(known), help=", ".join(map(str, known)))
    found.add_argument("--sample", type=int, nargs="?", const=3, default=0, help="only so many cells of each kind")
    found.add_argument("--seed", type=int, default=1, help="of the sample")
    found.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    found.add_argument("--list", action="store_true", help="print the cells and end")
    return found


def parse(matrix, arguments):
    """Returns the options, with values of the types that matrix.known has."""
    options = arguments.parse_args()
    for name, known in (("kinds", matrix.kinds), *matrix.known.items()):
        values = {str(value): value for value in known}
        given = list(map(str, getattr(options, name)))
        if unknown := [item for item in given if item not in values]:
            arguments.error(f"{unknown[0]}: expected one of {', '.join(values)}")
        setattr(options, name, [values[item] for item in given])
    return options


def cells_of(matrix, options):
    """Returns the cells in the order in which they run; a sample does not depend on the kinds that are run."""
    kinds = [list(kind(options)) for kind in matrix.kinds.values()]
    if options.sample:
        draw = random.Random(options.seed)
        kinds = [sorted(draw.sample(all_, min(options.sample, len(all_))), key=all_.index) for all_ in kinds]
    return [cell for kind in kinds for cell in kind if cell.kind in options.kinds]


def run_cells(matrix, options, cells, folder):
    """Runs the cells that have not passed yet. Returns the exit code."""
    worker = pathlib.Path(options.build) / "bin/lockstep-worker"
    folder = folder / hashlib.sha256(worker.read_bytes()).hexdigest()[:16]
    runs = matrix_runs.Runs(options, folder, matrix.steps)
    results = folder / "cells.jsonl"
    before = passed_before(results)
    name_of = matrix.name_of
    failed = [cell for cell in cells if name_of(cell) not in before and not run_cell(matrix, runs, cell, results)]
    skipped = sum(name_of(cell) in before for cell in cells)
    kept = f"; results: {results}" if options.results else ""
    print(f"{len(cells) - len(failed)} of {len(cells)} cells passed, {skipped} of them before{kept}")
    return 1 if failed or not cells else 0


def run(matrix, options):
    """Lists the cells or runs them. Returns the exit code."""
    cells = cells_of(matrix, options)
    if options.list:
        print("\n".join(map(matrix.name_of, cells)))
        return 0
    if options.results:
        return run_cells(matrix, options, cells, options.results.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return run_cells(matrix, options, cells, pathlib.Path(folder))
