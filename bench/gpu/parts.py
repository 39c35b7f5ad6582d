"""The parts of tools/gpu-check, in their order: name, seconds at most, what it does."""
import os
import platform
import re
import shutil

from compare import compare
from runner import CUT, FAILED, PASSED, SKIPPED, Finding
from speed import speed


def facts(check):
    """What the results belong to."""
    values = {"commit": check.text(["git", "-C", check.root, "describe", "--always", "--dirty"]),
              "cpus": os.cpu_count(), "processor": processor(), "compiler": check.text(["c++", "--version"]),
              "cmake": check.text(["cmake", "--version"]), "nvcc": check.text([nvcc(), "--version"], "release"),
              "torch": check.torch, "device": check.device, "gpu": check.gpu}
    gpu = check.gpu or "no GPU, so the CPU at tiny sizes"
    return Finding(PASSED, f"{gpu}; {values['cpus']} CPUs; PyTorch {check.torch or 'none'}; {values['commit']}", values)


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = re.findall(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def nvcc():
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def build(check):
    if check.options.no_build:
        return Finding(SKIPPED, f"--no-build: the programs in {check.build}")
    settings = [f"-DLOCKSTEP_HEADERS={check.options.headers}"] if check.options.headers else []
    if check.gpu:
        settings.append("-DCMAKE_CUDA_ARCHITECTURES=native")
    for command in (["cmake", "--preset", "worker", "-S", check.root, "-B", check.build, *settings],
                    ["cmake", "--build", check.build, "-j", str(os.cpu_count())]):
        outcome = check.run(command)
        if outcome.code != 0:
            return outcome.finding("")
    return Finding(PASSED, "cmake --preset worker")


def gpu_tests(check):
    """Each op and the device layer against the CPU."""
    return judged_all(check, {name: [check.program(name)] for name in ("kernels_gpu_test", "comm_gpu_test")})


def judged_all(check, commands):
    """Programs that are their own judges, by name; the worst of them counts."""
    found = {name: check.run(command).finding("") for name, command in commands.items()}
    worst = max((one.status for one in found.values()), key=(PASSED, SKIPPED, CUT, FAILED).index)
    return Finding(worst, "; ".join(f"{name}: {one.what}" for name, one in found.items()))


def kernels(check):
    """Time, FLOPs and bytes of each op."""
    command = [check.program("bench_kernels"), "--device", check.device]
    outcome = check.run(command + ([] if check.device == "cuda" else ["--tiny"]))
    found = outcome.finding("rows in kernels.log" if check.device == "cuda" else "tiny rows in kernels.log")
    found.values["rows"] = [line for line in outcome.output.splitlines() if " us [" in line]
    if found.status == PASSED and not found.values["rows"]:
        return Finding(FAILED, "it printed no row")
    return found


def sanitize(check):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not check.gpu or not os.path.exists(tool):
        return Finding(SKIPPED, "no GPU" if not check.gpu else "the machine has no compute-sanitizer")
    return judged_all(check, {
        name: [tool, "--tool", name, "--error-exitcode", "1", check.program("kernels_gpu_test")]
        for name in ("memcheck", "racecheck")})


def tests(check):
    outcome = check.run(["ctest", "--test-dir", check.build, "-j", str(os.cpu_count()), "--timeout", "120",
                         "-LE", "gpu_check"])
    summary = re.search(r"\d+% tests passed.*", outcome.output)
    return outcome.finding(summary.group(0) if summary else "")


# The sum may be more than the limit of all: what is late gets what is left.
PARTS = (("facts", 20, facts), ("build", 200, build), ("gpu-tests", 60, gpu_tests), ("compare", 90, compare),
         ("speed", 240, speed), ("kernels", 60, kernels), ("sanitize", 60, sanitize), ("tests", 120, tests))
