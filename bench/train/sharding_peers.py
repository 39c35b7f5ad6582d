#!/usr/bin/env python3
"""Compares data-parallel training on this machine's CPUs with PyTorch's DDP and FSDP2, in turns.

  python3 -m venv env && env/bin/pip install torch numpy    # a current release
  bench/train/sharding_peers.py --python env/bin/python --build build --markdown FILE
  bench/train/sharding_peers.py --python env/bin/python --build build --rows 'none' --ranks 2 --rounds 1

Both train the same GPT-2 of 9 M parameters in fp32 on the same tokens, with one thread per process, from the weights
that PyTorch drew, with AdamW and clipping. PyTorch uses gloo over TCP. Lockstep runs twice: as one pod, whose ranks
share memory, and as one pod per rank, which use TCP. First, PyTorch tries its settings (fused or foreach AdamW, sizes
of DDP's buckets; then, with the fastest of these, torch.compile of the layers and for DDP of the whole model), and the
fastest one is kept. Then the programs take turns. Prints Markdown tables of tokens/s, by the median step of each turn: median (least to most) of the turns, and the median of
the ratios of each turn. A second table has the seconds of a step in which Lockstep's ranks waited for communication.

Every turn's losses must be those of PyTorch's first turn, to 1e-4. Exits with 1 if they are not, or if a program
failed, and with 77 if --python has no PyTorch. Nothing else should run on the machine meanwhile.
"""
import argparse
import collections
import itertools
import pathlib
import subprocess
import sys
import tempfile

import peer_turns
import report
from peer_turns import Failed, ratio, spread, text_of

MODEL = {"layers": 6, "width": 320, "heads": 5, "context": 128, "vocabulary": 4096}
TINY = {"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 512}
SHARDED = {"sharding": "parameters"}
# name, spec.parallelism, torch_gpt2.py's --parallel
Row = collections.namedtuple("Row", "name fields peer")
ROWS = {row.name: row for row in (
    Row("none", {}, "ddp"),
    Row("optimizer", {"sharding": "optimizer"}, "ddp"),
    Row("gradients", {"sharding": "gradients"}, "fsdp-kept"),
    Row("parameters, kept", SHARDED | {"reshardAfterForward": False}, "fsdp-kept"),
    Row("parameters", SHARDED, "fsdp"),
    Row("parameters, no prefetch", SHARDED | {"prefetch": False}, "fsdp"),
)}
PEERS = {"ddp": "DDP", "fsdp": "FSDP2", "fsdp-kept": "FSDP2, reshard_after_forward=False"}


def eager_settings(peer):
    """Returns the settings of PyTorch to choose from, without torch.compile."""
    buckets = ({"bucket-mb": 4}, {"bucket-mb": 25}) if peer == "ddp" else ({},)
    return [bucket | {"optimizer": optimizer} for bucket, optimizer in itertools.product(buckets, ("fused", "foreach"))]


def compiled_settings(peer, settings):
    return [settings | {"compile": what} for what in (("layers", "full") if peer == "ddp" else ("layers",))]


def work_of(options, folder, ranks):
    return peer_turns.Work(options, folder, TINY if options.tiny else MODEL, {"global": options.batch * ranks})


def run_peer(work, ranks, peer, settings):
    """Returns the tokens/s of PyTorch, and the version."""
    options = work.options
    flags = work.model | {"batch": options.batch, "ranks": ranks, "threads": 1, "rate": peer_turns.RATE,
                          "warmup": options.warmup, "steps": options.steps, "parallel": peer, "tokens": work.tokens}
    result = peer_turns.run_python(work, f"PyTorch, {peer}, {text_of(settings)}", "torch_gpt2.py", flags | settings,
                                   ["--curve"])
    return result["tokensPerSecond"], result["peer"]


def try_settings(work, ranks, peer, tried):
    """Returns pairs of tokens/s and settings, and the version. A setting that fails is named and left out."""
    found, version = [], ""
    for settings in tried:
        try:
            speed, version = run_peer(work, ranks, peer, settings)
        except Failed as error:
            print(error, file=sys.stderr, flush=True)
            continue
        found.append((speed, settings))
        print(f"{ranks} ranks, {peer}, {text_of(settings)}: {speed:,.0f} tokens/s", file=sys.stderr, flush=True)
    return found, version


def fastest(work, ranks, peer):
    """Returns PyTorch's fastest settings and its version."""
    def speed_of(pair):
        return pair[0]

    found, version = try_settings(work, ranks, peer, eager_settings(peer))
    if not found:
        raise Failed(f"PyTorch, {peer}: every setting failed")
    if not work.options.eager:
        found += try_settings(work, ranks, peer, compiled_settings(peer, max(found, key=speed_of)[1]))[0]
    return max(found, key=speed_of)[1], version


def compare(work, ranks, row, settings, waits, table):
    """Runs the programs in turns, and adds a row."""
    pods = {"one pod": 1, f"{ranks} pods": ranks}
    mine, theirs = {name: [] for name in pods}, []
    for _ in range(work.options.rounds):
        for name, count in pods.items():
            speed, parts = peer_turns.run_ours(work, row.fields, count, ranks // count)
            mine[name].append(speed)
            waits[row.name, ranks, name].append(parts["communication"])
        theirs.append(run_peer(work, ranks, row.peer, settings)[0])
    for name, speeds in mine.items():
        table.row(row.name, ranks, name, spread(speeds), f"{PEERS[row.peer]}: {spread(theirs)}",
                  ratio(speeds, theirs))


def peer_only(work, ranks, peer, settings, table):
    speeds = [run_peer(work, ranks, peer, settings)[0] for _ in range(work.options.rounds)]
    table.row("-", ranks, "-", "-", f"{PEERS[peer]}: {spread(speeds)}", "-")


def all_rows(options, waits, table):
    """Measures everything. Returns the settings of PyTorch that were used, and the failures."""
    used, failures, version = {}, [], ""
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            work = work_of(options, pathlib.Path(folder), ranks)
            for row in options.rows:
                try:
                    if (row.peer, ranks) not in used:
                        used[row.peer, ranks], version = fastest(work, ranks, row.peer)
                    if options.peer_only:
                        peer_only(work, ranks, row.peer, used[row.peer, ranks], table)
                    else:
                        compare(work, ranks, row, used[row.peer, ranks], waits, table)
                except Failed as error:
                    failures.append(str(error))
                    print(error, file=sys.stderr, flush=True)
    chosen = [f"{PEERS[peer]}, {ranks} ranks: {text_of(settings)}" for (peer, ranks), settings in used.items()]
    return [f"{version}. Its fastest settings: " + "; ".join(chosen) + "."] if chosen else [], failures


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=lambda text: [int(item) for item in text.split(",")], default=[2, 4])
    parser.add_argument("--rows", default=";".join(ROWS), help="separated by semicolons: " + "; ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="timed in each turn")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4, help="sequences of each rank")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one turn may take")
    parser.add_argument("--eager", action="store_true", help="do not try torch.compile")
    parser.add_argument("--peer-only", action="store_true", help="run PyTorch alone")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the program")
    parser.add_argument("--markdown", help="file for the tables")
    options = parser.parse_args()
    names = [name.strip() for name in options.rows.split(";")]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"--rows: {unknown[0]}: expected some of {'; '.join(ROWS)}")
    options.rows = [ROWS[name] for name in names]
    if min(options.ranks) < 2 or min(options.rounds, options.steps, options.batch) < 1 or options.warmup < 1:
        parser.error("expected --ranks from 2, and --rounds, --steps, --warmup and --batch from 1")
    return options


def main():
    options = parse()
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"no PyTorch for {options.python}")
        return 77
    table = report.Report("Data parallelism on a CPU, next to PyTorch")
    waits = collections.defaultdict(list)
    model = TINY if options.tiny else MODEL
    table.add(f"{model}, fp32, {options.batch} x {model['context']} tokens for each rank, 1 thread each; "
              f"{options.rounds} rounds of {options.steps} steps after {options.warmup} for warming up.")
    table.head("sharding", "ranks", "Lockstep as", "Lockstep, tokens/s", "PyTorch, tokens/s", "ratio")
    notes, failures = all_rows(options, waits, table)
    if waits:
        table.head("sharding", "ranks", "as", "seconds of a step spent waiting for communication")
        for (name, ranks, pods), seconds in waits.items():
            table.row(name, ranks, pods, spread(seconds, 4))
    for line in notes + [f"Failed: {text.splitlines()[0]}" for text in failures]:
        table.add("\n" + line)
    if options.markdown:
        table.save(options.markdown)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
