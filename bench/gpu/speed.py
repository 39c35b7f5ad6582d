"""Tokens/s of whole optimizer steps beside PyTorch: ours, PyTorch compiled, ours again."""
import statistics

from compare import flags
from runner import CUT, FAILED, PASSED, SKIPPED, Finding

# In the order in which they matter, for where the time is short. Sequences of a micro-batch: what an H200 holds.
SIZES = {"cuda": [{"preset": "gpt2-124m", "batch": 64, "context": 1024},
                  {"preset": "gpt2-1.5b", "batch": 8, "context": 1024},
                  {"preset": "gpt2-350m", "batch": 32, "context": 1024},
                  {"preset": "gpt2-774m", "batch": 16, "context": 1024}],
         "cpu": [{"preset": "tiny", "batch": 4, "context": 16}]}
STEPS = {"cuda": {"warmup": 5, "steps": 20}, "cpu": {"warmup": 1, "steps": 5}}


def ours(check, size):
    return check.json([check.program("bench_step"), *flags({
        **size, **STEPS[check.device], "device": check.device, "precision": "bf16",
        "threads": check.threads})])


def theirs(check, size):
    command = [check.python, check.root / "bench/train/torch_gpt2.py", *flags({
        **size, **STEPS[check.device], "device": check.device, "precision": "bf16", "threads": check.threads})]
    return check.json(command + (["--compile"] if check.device == "cuda" else []))


def row_of(size, mine, peer):
    """One model's: rates, their quotient, and what of the device's peak they are."""
    rates = [one["tokensPerSecond"] for one in mine]
    row = {**size, "oursTokensPerSecond": statistics.median(rates), "oursLeast": min(rates), "oursMost": max(rates),
           "oursFirstStepSeconds": mine[0]["firstStepSeconds"], "oursBatch": mine[0]["batch"],
           "oursPartSeconds": mine[0].get("partSeconds")}
    if peer is not None:
        row.update(torchTokensPerSecond=peer["tokensPerSecond"], torchFirstStepSeconds=peer["firstStepSeconds"],
                   torchBatch=peer["batch"], torchMemoryBytes=peer.get("memoryBytes"),
                   ratio=row["oursTokensPerSecond"] / peer["tokensPerSecond"])
    for name, flops in (("palm", "palmFlopsPerToken"), ("causal", "causalFlopsPerToken")):
        for of, per_second in mine[0].get("peakFlopsPerSecond", {}).items():
            row[f"{name}Of_{of}"] = row["oursTokensPerSecond"] * mine[0][flops] / per_second
    return row


def words(row):
    text = f"{row['preset']} {row['oursTokensPerSecond']:,.0f} tok/s"
    if "ratio" in row:
        text += f" ({row['ratio']:.2f} x PyTorch)"
    return text


def speed(check):
    rows, troubles, cut = [], [], []
    for size in SIZES[check.device]:
        if check.models and size["preset"] not in check.models:
            continue
        if check.budget.left() < check.least_seconds:
            cut.append(size["preset"])
            continue
        mine, peer = [], None
        for program in (ours, theirs, ours):
            if program is theirs and check.torch is None:
                continue
            outcome, values = program(check, size)
            if values is None:
                found = outcome.finding("")
                troubles.append((found.status, f"{size['preset']}, {program.__name__}: {found.what}"))
                if program is ours:
                    break
            elif program is theirs:
                peer = values
            else:
                mine.append(values)
        if mine:
            rows.append(row_of(size, mine, peer))
    return verdict(rows, troubles, cut, check.torch)


def verdict(rows, troubles, cut, torch):
    what = [words(row) for row in rows] + [text for _, text in troubles]
    if cut:
        what.append(f"no time was left for {', '.join(cut)}")
    if torch is None:
        what.append("without PyTorch beside it")
    statuses = {status for status, _ in troubles}
    status = PASSED
    if FAILED in statuses or PASSED in statuses:  # who passes and prints no JSON has failed
        status = FAILED
    elif CUT in statuses or cut:
        status = CUT
    elif SKIPPED in statuses or not rows or torch is None:
        status = SKIPPED
    return Finding(status, "; ".join(what) or "no model was asked for", {"rows": rows})
