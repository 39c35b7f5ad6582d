"""Compares steps with PyTorch's: same weights, tokens and optimizer. Runs ours twice."""
import array
import random

from runner import CUT, FAILED, PASSED, SKIPPED, Finding

STEPS = 20
FP32_RELATIVE = 1e-4  # limit of the two programs' difference in a step's loss, in fp32
BF16_RATIO = 2.0      # limit of our bf16 to fp32 distance, relative to PyTorch's
BF16_FLOOR = 1e-6     # mean distances below this are rounding of the sums

SIZES = {"cuda": {"preset": "gpt2-124m", "batch": 8, "context": 1024},
         "cpu": {"preset": "tiny", "batch": 4, "context": 16}}
VOCABULARY = {"gpt2-124m": 50257, "tiny": 256}


def write_tokens(path, size):
    count = size["batch"] * size["context"] + 1
    draw = random.Random(1)
    array.array("H", (draw.randrange(VOCABULARY[size["preset"]]) for _ in range(count))).tofile(
        open(path, "wb"))


def flags(values):
    return [part for key, value in values.items() for part in (f"--{key}", str(value))]


def ours(check, size, precision):
    return check.json([check.program("bench_step"), *flags({
        **size, "device": check.device, "precision": precision, "threads": check.threads, "warmup": 0,
        "steps": STEPS, "rate": 3e-4, "tokens": check.scratch / "compare.tokens",
        "weights": check.scratch / "compare.safetensors", "curve": "yes", "peak": 0})])


def theirs(check, size, precision):
    return check.json([check.python, check.root / "bench/train/torch_gpt2.py", *flags({
        **size, "device": check.torch_device, "precision": precision, "threads": check.threads, "warmup": 0,
        "steps": STEPS, "rate": 3e-4, "tokens": check.scratch / "compare.tokens",
        "weights-out": check.scratch / "compare.safetensors"}), "--curve"])


def relative(mine, other):
    return max(abs(a - b) / abs(b) for a, b in zip(mine, other))


def mean_distance(mine, other):
    return sum(abs(a - b) for a, b in zip(mine, other)) / len(mine)


def judge(curves, digests):
    """Returns what is wrong, as text, and the values compared.

    curves: losses by (program, precision); digests: of our two runs, by precision.
    """
    wrong, values = [], {}
    for precision, pair in digests.items():
        values[f"sameTwice_{precision}"] = pair[0] == pair[1]
        if pair[0] != pair[1]:
            wrong.append(f"the same run twice differs in {precision}")
    if ("torch", "fp32") in curves:
        values["fp32Relative"] = relative(curves["ours", "fp32"], curves["torch", "fp32"])
        if not values["fp32Relative"] <= FP32_RELATIVE:
            wrong.append(f"fp32 differs from PyTorch's by {values['fp32Relative']:.1e}")
    if ("torch", "bf16") in curves:
        values["bf16Distance"] = mean_distance(curves["ours", "bf16"], curves["ours", "fp32"])
        values["bf16DistanceOfTorch"] = mean_distance(curves["torch", "bf16"], curves["torch", "fp32"])
        if not values["bf16Distance"] <= max(BF16_RATIO * values["bf16DistanceOfTorch"], BF16_FLOOR):
            wrong.append(f"bf16 is {values['bf16Distance']:.1e} from fp32, PyTorch's "
                         f"{values['bf16DistanceOfTorch']:.1e}")
    return wrong, values


def compare(check):
    """Compares 20 steps with PyTorch on the same weights and data, and runs ours twice."""
    if check.torch is None:
        return Finding(SKIPPED, f"{check.python} has no PyTorch, which makes the weights")
    size = SIZES[check.sizes]
    write_tokens(check.scratch / "compare.tokens", size)
    curves, digests = {}, {}
    for precision in ("fp32", "bf16"):
        for name, program in (("torch", theirs), ("ours", ours), ("again", ours)):
            outcome, values = program(check, size, precision)
            if values is None:
                found = outcome.finding()
                status = found.status if found.status in (CUT, SKIPPED) else FAILED
                return Finding(status, f"{name}, {precision}: {found.what}", {"losses": named(curves)})
            if len(values["losses"]) != STEPS:
                return Finding(FAILED, f"{name}, {precision}: {len(values['losses'])} losses")
            if name != "again":
                curves[name, precision] = values["losses"]
            if name != "torch":
                digests.setdefault(precision, []).append((values["losses"], values["parametersSha256"]))
    (check.scratch / "compare.safetensors").unlink()
    wrong, values = judge(curves, digests)
    what = "; ".join(wrong) or (f"{STEPS} steps of {size['preset']} on the {check.device}: same bits twice, fp32 "
                                f"within {values['fp32Relative']:.1e} of PyTorch, bf16 {values['bf16Distance']:.1e} "
                                f"from fp32 (PyTorch {values['bf16DistanceOfTorch']:.1e})")
    return Finding(FAILED if wrong else PASSED, what, {**values, **size, "losses": named(curves)})


def named(curves):
    return {f"{name}_{precision}": losses for (name, precision), losses in curves.items()}
