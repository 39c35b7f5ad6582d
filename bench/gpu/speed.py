"""Tokens/s of whole optimizer steps, in turns with PyTorch: PyTorch, ours, PyTorch, ours."""
import contextlib
import statistics

from compare import flags
from runner import CUT, FAILED, NO_CUDNN, PASSED, SKIPPED, Finding

TURNS = 2
# Most important first, in case time runs out. batch: sequences per micro-batch, as many as fit on
# an H100 while PyTorch keeps its parameters and optimizer state there. compile: how PyTorch
# compiles. "full" takes longer the more layers there are; "layers" compiles one layer for all of
# them.
SIZES = {"cuda": [{"preset": "gpt2-124m", "batch": 64, "context": 1024, "compile": "full"},
                  {"preset": "gpt2-1.5b", "batch": 8, "context": 1024, "compile": "layers"},
                  {"preset": "gpt2-350m", "batch": 32, "context": 1024, "compile": "layers"},
                  {"preset": "gpt2-774m", "batch": 16, "context": 1024, "compile": "layers"}],
         "cpu": [{"preset": "tiny", "batch": 4, "context": 16, "compile": ""}]}
STEPS = {"cuda": {"warmup": 5, "steps": 20}, "cpu": {"warmup": 1, "steps": 5}}
PEAK = {"cuda": 8192, "cpu": 64}  # edge of the products that measure the device's peak
# On a GPU we compare what attention: auto chooses there. The smallest model's heads are too narrow
# for cuDNN.
USUAL = {"attention": "cudnn"}
# Other settings of ours, each run once after the turns. With measured algorithms, results may be
# rounded differently in another process.
OTHERS_OF_OURS = [{"algorithms": "measured"}, {"attention": "own"}]
# Other settings of PyTorch for the first model, to find the best one.
SETTINGS = {"cuda": [{"compile": "full", "attention": "cudnn"}, {"compile": "full", "attention": "flash"},
                     {"compile": "layers"},
                     {"compile": "full", "batch": 32, "accumulate": 2},
                     {"compile": "full", "batch": 16, "accumulate": 4}],
            "cpu": [{"compile": "layers"}]}


def ours(check, size, change=None):
    return check.json([check.program("bench_step"), *flags({
        "preset": size["preset"], "batch": size["batch"], "context": size["context"], **STEPS[check.sizes],
        "device": check.device, "precision": "bf16", "threads": check.threads, "peak": PEAK[check.sizes],
        **(change or {})})])


def command_of_theirs(check, size):
    size = dict(size)
    how = size.pop("compile")
    command = [check.python, check.root / "bench/train/torch_gpt2.py", "--turns", *flags({
        **size, **STEPS[check.sizes], "device": check.torch_device, "precision": "bf16", "threads": check.threads})]
    return command + (["--compile", how] if how else [])


@contextlib.contextmanager
def peer_of(check, size):
    """Yields a session of PyTorch that compiles, warms up and waits for its turns.

    Yields None without PyTorch.
    """
    if check.torch is None:
        yield None
        return
    with check.session(command_of_theirs(check, size)) as session:
        yield session


def row_of(size, mine, peers):
    """Returns one model's row: rates, their ratio, memory, and shares of the device's peak."""
    rates = [one["tokensPerSecond"] for one in mine]
    row = {**size, "oursTokensPerSecond": statistics.median(rates), "oursLeast": min(rates), "oursMost": max(rates),
           "oursFirstStepSeconds": mine[0]["firstStepSeconds"], "oursBatch": mine[0]["batch"],
           "oursMemoryBytes": mine[0].get("memoryBytes"), "oursPartSeconds": mine[0].get("partSeconds"),
           "ours": mine, "torch": peers, "oursOthers": []}
    if peers:
        rates = [one["tokensPerSecond"] for one in peers]
        row.update(torchTokensPerSecond=statistics.median(rates), torchLeast=min(rates), torchMost=max(rates),
                   torchFirstStepSeconds=peers[0]["firstStepSeconds"], torchBatch=peers[0]["batch"],
                   torchMemoryBytes=peers[0].get("memoryBytes"),
                   ratio=row["oursTokensPerSecond"] / statistics.median(rates))
    for name, flops in (("palm", "palmFlopsPerToken"), ("causal", "causalFlopsPerToken")):
        for of, per_second in mine[0].get("peakFlopsPerSecond", {}).items():
            row[f"{name}Of_{of}"] = row["oursTokensPerSecond"] * mine[0][flops] / per_second
    return row


def words(row):
    text = f"{row['preset']} {row['oursTokensPerSecond']:,.0f} tok/s"
    if "ratio" in row:
        text += f" ({row['ratio']:.2f} x PyTorch)"
    return text


def line_of(row):
    text = (f"{row['preset']} {row['oursBatch']}x{row['context']}: ours {row['oursTokensPerSecond']:,.0f} tok/s "
            f"[{row['oursLeast']:,.0f} {row['oursMost']:,.0f}]")
    if row.get("palmOf_measured"):
        text += f", {100 * row['palmOf_measured']:.1f} % of the measured peak"
    text += f", {(row['oursMemoryBytes'] or 0) / 1e9:.1f} GB, first step {row['oursFirstStepSeconds']:.1f} s"
    if "ratio" in row:
        text += (f"; PyTorch (compile {row['compile'] or 'none'}, {row['torchBatch']}) "
                 f"{row['torchTokensPerSecond']:,.0f} [{row['torchLeast']:,.0f} {row['torchMost']:,.0f}], "
                 f"{(row['torchMemoryBytes'] or 0) / 1e9:.1f} GB, {row['torchFirstStepSeconds']:.1f} s; "
                 f"{row['ratio']:.2f} x")
    return text


def named(change):
    return ", ".join(f"{key} {value}" for key, value in change.items())


def more_of(row):
    """Returns lines with the parts of the step and our other settings, if there are any."""
    lines = []
    if row["oursPartSeconds"]:
        lines.append(f"  {row['preset']} step by part: " + ", ".join(
            f"{name} {seconds * 1e3:.2f} ms" for name, seconds in row["oursPartSeconds"].items()))
    for other in row["oursOthers"]:
        change = {key: value for key, value in other.items() if key != "tokensPerSecond"}
        lines.append(f"  {row['preset']} ours with {named(change)}: {other['tokensPerSecond']:,.0f} tok/s")
    return lines


class Measurement:
    """Measures several models; holds their rows and what went wrong."""

    def __init__(self, check):
        self.check, self.rows, self.troubles, self.cut = check, [], [], []
        self.has_cudnn = check.device == "cuda"

    def ours(self, size, change=None):
        """Runs ours as usual, but for the change. Without cuDNN the usual is our own attention."""
        usual = USUAL if self.has_cudnn and size["preset"] != "tiny" else {}
        outcome, values = ours(self.check, size, {**usual, **(change or {})})
        if not usual or outcome.code != NO_CUDNN:
            return outcome, values
        self.note(size, f"ours with {named(usual)}", outcome)
        self.has_cudnn = False
        return ours(self.check, size, change)

    def note(self, size, who, outcome):
        found = outcome.finding()
        self.troubles.append((found.status, f"{size['preset']}, {who}: {found.what}"))

    def theirs(self, size, peer, line=None):
        """Returns the peer's answer and the peer; None for both if it gave no answer."""
        outcome, values = peer.answer(self.check.budget.left(), line)
        if values is None:
            self.note(size, "theirs", outcome)
        return (values, peer) if values is not None else (None, None)

    def one(self, size):
        mine, peers = [], []
        with peer_of(self.check, size) as peer:
            if peer is not None:
                _, peer = self.theirs(size, peer)
            for _ in range(TURNS):
                if peer is not None:
                    values, peer = self.theirs(size, peer, "go")
                    peers += [values] if values else []
                outcome, values = self.ours(size)
                if values is None and outcome.code is not None and peer is not None:
                    peer.end()  # perhaps the GPU had no room for both
                    peer = None
                    outcome, values = self.ours(size)
                if values is None:
                    self.note(size, "ours", outcome)
                    break
                mine.append(values)
        if not mine:
            return
        self.rows.append(row_of(size, mine, peers))
        for change in OTHERS_OF_OURS if self.check.device == "cuda" else []:
            if "attention" in change and size["preset"] == "tiny":
                continue  # as usual
            outcome, values = self.ours(size, change)
            if values is None:
                self.note(size, f"ours with {named(change)}", outcome)
            else:
                self.rows[-1]["oursOthers"].append({**change, "tokensPerSecond": values["tokensPerSecond"]})

    def all(self, sizes):
        for size in sizes:
            if self.check.models and size["preset"] not in self.check.models:
                continue
            if self.check.budget.left() < self.check.least_seconds:
                self.cut.append(size["preset"])
            else:
                self.one(size)
        return verdict(self.rows, self.troubles, self.cut, self.check.torch)


def speed(check):
    """Compares GPT-2 124M with PyTorch, in turns."""
    return Measurement(check).all(SIZES[check.sizes][:1])


def speed_of_others(check):
    """Compares 350M, 774M and 1.5B with PyTorch, in turns."""
    others = SIZES[check.sizes][1:]
    return Measurement(check).all(others) if others else Finding(PASSED, "there is one model at this size")


def settings(check):
    """Finds PyTorch's best setting for the first model."""
    if check.torch is None:
        return Finding(SKIPPED, f"{check.python} has no PyTorch")
    first = SIZES[check.sizes][0]
    rows, cut = [], []
    for change in [{}] + SETTINGS[check.sizes]:
        size = {**first, **change}
        if check.budget.left() < check.least_seconds:
            cut.append(change)
            continue
        with check.session(command_of_theirs(check, size)) as peer:
            outcome, ready = peer.answer(check.budget.left())
            if ready is not None:
                outcome, ready = peer.answer(check.budget.left(), "go")
        if ready is None:
            rows.append({**change, "why": outcome.finding().what})
            (cut if outcome.code is None else []).append(change)
        else:
            rows.append({**change, "batchUsed": ready["batch"], "tokensPerSecond": ready["tokensPerSecond"]})
    measured = [row for row in rows if "tokensPerSecond" in row]
    values = {"preset": first["preset"], "rows": rows}
    if not measured:
        return Finding(CUT if cut else FAILED, "no setting of PyTorch's ran", values)
    best = max(measured, key=lambda row: row["tokensPerSecond"])
    usual = next((row for row in measured if row is rows[0]), None)
    gain = f", {best['tokensPerSecond'] / usual['tokensPerSecond']:.3f} x what was compared with" if usual else ""
    known = {key for each in SETTINGS[check.sizes] for key in each}
    change = named({key: value for key, value in best.items() if key in known})
    return Finding(CUT if cut else PASSED, f"of {len(measured)} settings the best is {change or 'the usual one'}{gain}",
                   values)


def verdict(rows, troubles, cut, torch):
    what = [words(row) for row in rows] + [text for _, text in troubles]
    if cut:
        what.append(f"no time was left for {', '.join(cut)}")
    if torch is None:
        what.append("without PyTorch beside it")
    statuses = {status for status, _ in troubles}
    status = PASSED
    if FAILED in statuses or PASSED in statuses:  # passing without printing JSON is a failure
        status = FAILED
    elif CUT in statuses or cut:
        status = CUT
    elif SKIPPED in statuses or not rows or torch is None:
        status = SKIPPED
    return Finding(status, "; ".join(what) or "no model was asked for", {"rows": rows},
                   [line for row in rows for line in (line_of(row), *more_of(row))])
