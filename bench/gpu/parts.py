"""The parts of tools/gpu-check, most valuable first: name, limit in seconds, function."""
import os
import platform
import re
import shutil

from compare import compare
from rooflines import attention, kernels
from runner import FAILED, NO_DEVICE, PASSED, SKIPPED, Finding, worst
from speed import settings, speed, speed_of_others

# The measured programs are built first; the other tests only if time is left.
MEASURED = ("bench_step", "bench_kernels", "kernels_gpu_test")
# Tests that need a GPU, apart from the ops'.
GPU_TESTS = ("comm_gpu_test", "train_gpu_test")
RESTARTS = 20  # of a test program, after cases that broke the device's context


def facts(check):
    """Records the machine and the versions that the results belong to."""
    gpu = ["nvidia-smi", "--query-gpu=driver_version,memory.total,compute_cap,clocks.max.sm", "--format=csv,noheader"]
    values = {"commit": check.text(["git", "-C", check.root, "describe", "--always", "--dirty"]),
              "cpus": cores(), "processor": processor(), "compiler": check.text(["c++", "--version"]),
              "cmake": check.text(["cmake", "--version"]), "nvcc": check.text([nvcc(), "--version"], "release"),
              "torch": check.torch, "device": check.device, "gpu": check.gpu,
              "driverMemoryCapabilityClock": check.text(gpu)}
    name = check.gpu or ("the emulated GPU" if check.rehearses else "no GPU, so the CPU at tiny sizes")
    what = f"{name}; {values['cpus']} CPUs; PyTorch {check.torch or 'none'}; {values['commit']}"
    unusable = what_is_wrong(check)
    return Finding(FAILED if unusable else PASSED, f"{unusable}; {what}" if unusable else what, values)


def what_is_wrong(check):
    if check.sees_gpu and check.gpu is None:
        return "NVIDIA's driver is here, but nvidia-smi names no GPU"
    if check.gpu is not None and check.torch is not None:
        sees = check.text([check.python, "-c", "import torch; print('GPUs:', torch.cuda.device_count())"], "GPUs:")
        if sees in (None, "GPUs: 0"):
            return "PyTorch sees no GPU"
    return ""


def cores():
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = re.findall(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def nvcc():
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def architecture(capability):
    """Returns the GPU's architecture; from Hopper on with architecture-specific instructions."""
    digits = re.fullmatch(r"(\d+)\.(\d)", capability or "")
    if digits is None:
        return None
    number = digits.group(1) + digits.group(2)
    return number + ("a" if int(number) >= 90 else "")


def configuration(check):
    found = ["cmake", "--preset", "worker", "-S", check.root, "-B", check.build]
    if shutil.which("ninja") and not (check.build / "CMakeCache.txt").exists():
        found += ["-G", "Ninja"]
    if check.options.headers:
        found.append(f"-DLOCKSTEP_HEADERS={check.options.headers}")
    one = architecture(check.text(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]))
    return found + ([f"-DCMAKE_CUDA_ARCHITECTURES={one}"] if one else [])


def build_targets(check, targets):
    """Configures and builds; returns None, or the finding if that failed."""
    command = ["cmake", "--build", check.build, "-j", str(cores())]
    for step in (configuration(check), command + (["--target", *targets] if targets else [])):
        outcome = check.run(step)
        if outcome.code != 0:
            return outcome.finding()
    return None


def build(check):
    """Builds what is measured."""
    if check.options.no_build:
        return Finding(SKIPPED, f"--no-build: the programs in {check.build}")
    targets = [f"emulated_{name}" for name in MEASURED] if check.rehearses else [*MEASURED, *GPU_TESTS]
    return build_targets(check, targets) or Finding(PASSED, f"cmake --preset worker; {', '.join(targets)}")


def gpu_tests(check):
    """Compares each op, the device layer and training by several ranks with the CPU."""
    found = {name: run_cases(check, name) for name in ("kernels_gpu_test",) + (
        () if check.rehearses else ("comm_gpu_test",))}
    if not check.rehearses:
        found["train_gpu_test"] = check.run([check.program("train_gpu_test"), "--gtest_brief=1"]).finding()
    if found["kernels_gpu_test"].status == FAILED and check.device == "cuda" and not check.rehearses:
        # Run again and wait for every launch, so that the log names the faulty one.
        check.run([check.program("kernels_gpu_test"), "--sync"])
    return Finding(worst(one.status for one in found.values()),
                   "; ".join(f"{name}: {one.what}" for name, one in found.items()),
                   {name: one.values for name, one in found.items() if one.values})


def run_cases(check, name):
    """Runs the cases of a test program (tests/kernels/gpu_cases.h).

    A case that broke the device's context, or ended the program, is left out of the next process, which runs the
    cases after it.
    """
    passed, failed = 0, []
    for _ in range(RESTARTS):
        outcome = check.run([check.program(name), "--skip", passed + len(failed)])
        ok, wrong = verdicts(outcome.output)
        passed += ok
        failed += wrong
        totals = re.search(r"^\d+ cases: .*, (\d+) not run$", outcome.output, re.MULTILINE)
        if totals is not None and totals.group(1) == "0":
            break
        if totals is None:
            if outcome.code in (None, 0, 1, 2, NO_DEVICE):  # out of time, or no usable device
                if not failed:
                    return outcome.finding()
                failed.append(f"the rest did not run: {outcome.finding().what}")
                break
            failed.append(f"exit code {outcome.code} in the case after {passed + len(failed)}")
    else:
        failed.append(f"the rest did not run: the device broke {RESTARTS} times")
    if not failed:
        return outcome.finding(f"{passed} cases passed")
    return Finding(FAILED, f"{passed} cases passed, {len(failed)} failed: {'; '.join(failed[:3])}"[:400],
                   {"passed": passed, "failed": failed})


def verdicts(output):
    """Returns the number of cases that passed, and the lines of those that failed."""
    lines = output.splitlines()
    return (sum(line.endswith(": ok") for line in lines), [line for line in lines if ": FAILED: " in line])


def sanitize(check):
    """Runs compute-sanitizer on every op, at small sizes."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not check.rehearses and (check.device != "cuda" or not os.path.exists(tool)):
        return Finding(SKIPPED, "no GPU" if check.device != "cuda" else "the machine has no compute-sanitizer")
    found = {}
    for name in ("memcheck", "racecheck"):
        for dtype in ("bf16", "fp32"):
            prefix = [] if check.rehearses else [tool, "--tool", name, "--error-exitcode", "1"]
            outcome = check.run([*prefix, check.program("bench_kernels"), "--tiny", "--device", "cuda",
                                 "--dtype", dtype])
            found[f"{name} {dtype}"] = verdict_of_sanitizer(outcome)
    return Finding(worst(one.status for one in found.values()),
                   "; ".join(f"{name}: {one.what}" for name, one in found.items()))


def verdict_of_sanitizer(outcome):
    if outcome.code not in (0, None) and "Device not supported" in outcome.output:
        return Finding(SKIPPED, "it does not support this device")
    summary = re.search(r"(ERROR|RACECHECK) SUMMARY: .*", outcome.output)
    found = outcome.finding("every op ran")
    return Finding(found.status, summary.group(0) if summary else found.what)


def tests(check):
    """Runs all tests of the preset worker, on the CPU."""
    if not check.options.no_build and not check.rehearses:
        wrong = build_targets(check, [])
        if wrong:
            return wrong
    some = ["-R", "^bench_kernels"] if check.rehearses else []
    outcome = check.run(["ctest", "--test-dir", check.build, "-j", str(cores()), "--timeout", "120",
                         "-LE", "gpu_check", *some])
    summary = re.search(r"\d+% tests passed.*", outcome.output)
    found = outcome.finding(summary.group(0) if summary else "")
    failed = re.findall(r"^\s*\d+ - (\S+) \(.*\)$", outcome.output, re.MULTILINE)
    return Finding(found.status, f"{summary.group(0)}: {', '.join(failed)}" if summary and failed else found.what)


# The sum may exceed the limit for all parts: late parts get what is left.
PARTS = (("facts", 30, facts), ("build", 90, build), ("gpu-tests", 60, gpu_tests), ("compare", 90, compare),
         ("speed", 150, speed), ("kernels", 60, kernels), ("attention", 60, attention),
         ("speed-others", 270, speed_of_others), ("sanitize", 60, sanitize), ("settings", 200, settings),
         ("tests", 200, tests))
