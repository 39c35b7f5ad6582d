"""The roofline of each op, and attention compared with PyTorch's and cuDNN's."""
import json

from runner import CUT, FAILED, NO_CUDNN, PASSED, SKIPPED, Finding, worst

LOWEST = 8  # kernels in the table: those that lose the most time

# Batch, sequence length, heads, head dimension, key/value heads.
SHAPES = {"cuda": ((64, 1024, 12, 64, 12), (32, 1024, 16, 64, 16), (16, 1024, 20, 64, 20), (8, 1024, 25, 64, 25),
                   (4, 4096, 16, 128, 16), (4, 4096, 32, 128, 8)),
          "cpu": ((1, 16, 2, 16, 2), (1, 80, 2, 64, 1))}


def bench(check, name, arguments):
    """Runs bench_kernels. Returns the outcome and the lines written, even if it was killed."""
    file = check.scratch / f"{name}.jsonl"
    command = [check.program("bench_kernels"), "--device", check.device, "--json", file, *arguments]
    outcome = check.run(command + (["--tiny"] if check.sizes == "cpu" else []))
    lines = file.read_text().splitlines() if file.exists() else []
    return outcome, [json.loads(line) for line in lines]


def kernels(check):
    """Measures a roofline row for each op: time, bytes, operations, % of the bound."""
    values, statuses, what, rows = {}, [], [], []
    for dtype in ("bf16", "fp32") if check.device == "cuda" else ("fp32",):
        outcome, found = bench(check, f"kernels-{dtype}", ["--dtype", dtype, "--seconds", "0.1"])
        values[dtype] = found
        measured = [row for row in found if "seconds" in row]
        status = outcome.finding().status
        statuses.append(FAILED if status == PASSED and not measured else status)
        what.append(f"{len(measured)} rows in {dtype}" + (f", {outcome.finding().what}" if status != PASSED else ""))
        rows = rows or measured
    return Finding(worst(statuses), "; ".join(what), values, [] if check.sizes == "cpu" else slowest(rows))


def slowest(rows):
    """Returns lines for the rows that are furthest, in seconds, from what the device allows."""
    late = sorted(rows, key=lambda row: row["boundSeconds"] - row["seconds"])[:LOWEST]
    return [f"{row['op'] + ' ' + row['sizes']:<62} {row['seconds'] * 1e6:9.1f} us, {row['percentOfBound']:5.1f} % of "
            f"{row['boundBy']}" for row in late]


def name_of(shape):
    return "x".join(str(size) for size in shape)


def ours(check, shapes, by="own"):
    """Returns the outcome, and (forward, backward) seconds of the shapes with kernels."""
    outcome, lines = bench(check, f"attention-{by}", [
        "--seconds", "0.1", "--by", by, "--attention", ",".join(name_of(shape) for shape in shapes)])
    rows = [line.get("seconds") for line in lines if "op" in line]
    pairs = dict(zip(map(name_of, shapes), zip(rows[::2], rows[1::2])))
    return outcome, {shape: pair for shape, pair in pairs.items() if None not in pair}


def theirs(check, shapes):
    """Returns the outcome, and rows by kind and shape; without seconds if unsupported."""
    command = [check.python, check.root / "bench/gpu/torch_attention.py", "--device", check.torch_device,
               *map(name_of, shapes)]
    outcome = check.run(command)
    kinds = {}
    for line in outcome.output.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            kinds.setdefault(row["kind"], {})[row["shape"]] = row
    return outcome, kinds


def attention(check):
    """Compares our attention by shape with PyTorch's flash and cuDNN, and the worker's cuDNN."""
    shapes = SHAPES[check.sizes]
    outcome, mine = ours(check, shapes)
    values, status = {"ours": mine}, outcome.finding().status
    if status == PASSED and len(mine) != len(shapes):
        return Finding(FAILED, f"{len(mine)} of {len(shapes)} shapes were measured", values)
    words = "" if status == PASSED else outcome.finding().what
    kinds = {}
    if check.device == "cuda":
        outcome, found = ours(check, shapes, "cudnn")
        kinds["our cuDNN"] = as_rows(found)
        if not found or outcome.code not in (0, NO_CUDNN):  # cuDNN need not support every shape
            status = worst((status, FAILED if outcome.code == 0 else outcome.finding().status))
            words = words or f"with cuDNN: {outcome.finding().what}"
    if check.torch is None:
        status, words = worst((status, SKIPPED)), words or "no PyTorch beside it"
    else:
        peer, found = theirs(check, shapes)
        kinds.update(found)
        status = worst((status, CUT if peer.code is None else PASSED if peer.code == 0 else FAILED))
        words = words or ("" if peer.code == 0 else peer.finding().what)
    values["others"] = kinds
    lines = [line_of(name_of(shape), mine, kinds) for shape in shapes if name_of(shape) in mine]
    return Finding(status, words or f"{len(mine)} shapes, forward and backward", values, lines)


def as_rows(seconds):
    return {shape: {"forward": pair[0], "backward": pair[1]} for shape, pair in seconds.items()}


def line_of(shape, mine, kinds):
    parts = [f"attention {shape:<18} ours {micro(mine[shape])} us"]
    for kind, rows in kinds.items():
        row = rows.get(shape, {})
        parts.append(f"{kind} {micro((row['forward'], row['backward'])) if 'forward' in row else 'none'}")
    return ", ".join(parts)


def micro(pair):
    return " + ".join(f"{seconds * 1e6:.1f}" for seconds in pair)
