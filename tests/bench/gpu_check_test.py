#!/usr/bin/env python3
"""tools/gpu-check's own logic: fake programs that pass, fail, are skipped or take too long, and what it makes of
them; and, where LOCKSTEP_BUILD names a build, its own programs on the CPU."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/gpu-check"
sys.path.insert(0, str(TOOL.parent.parent / "bench/gpu"))
import check as check_module  # noqa: E402
import compare  # noqa: E402
import parts  # noqa: E402
import rooflines  # noqa: E402
import runner  # noqa: E402
import speed  # noqa: E402

FILES = ["log.txt", "results.json", "table.txt"]
MANY = 1 << 24

STEP = {"tokensPerSecond": 1000.0, "firstStepSeconds": 0.5, "batch": 4, "palmFlopsPerToken": 2e6,
        "causalFlopsPerToken": 1e6, "losses": [4.0] * compare.STEPS, "parametersSha256": "ab"}
TORCH = {"tokensPerSecond": 800.0, "firstStepSeconds": 9.0, "batch": 4, "losses": [4.0] * compare.STEPS}
ROWS = [{"device": "a CPU"}] + [
    {"op": "attention_" + way, "sizes": "B=1", "seconds": 2e-6, "boundSeconds": 1e-6, "boundBy": "memory",
     "percentOfBound": 50} for way in ("forward", "backward") * 2]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "build/bin"
        self.bin.mkdir(parents=True)
        self.fake("kernels_gpu_test", "echo '3 cases: 0 passed, 0 failed, 3 skipped, 0 not run'; exit 77")
        self.fake("comm_gpu_test", "echo '2 cases: 0 passed, 0 failed, 2 skipped'; exit 77")
        self.fake("train_gpu_test", "echo 'skipped, no CUDA device'; exit 77")
        self.fake("bench_kernels", self.kernels())
        self.fake("bench_step", f"echo '{json.dumps(STEP)}'")
        self.fake("nvidia-smi", "exit 9")
        self.python(json.dumps(TORCH))

    def fake(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    @staticmethod
    def kernels(rows=ROWS):
        """Writes these to what follows --json."""
        lines = "\n".join(json.dumps(row) for row in rows)
        return f'for word; do [ "$last" != --json ] || echo \'{lines}\' >"$word"; last=$word; done'

    def python(self, answer, writes_weights=True, ends=""):
        """A python with a PyTorch of its own."""
        weights = 'for word; do case "$last" in --weights-out) : >"$word";; esac; last=$word; done'
        attention = json.dumps({"kind": "flash", "shape": "1x16x2x16x2", "forward": 1e-6, "backward": 2e-6})
        self.fake("python", f"""if [ "$1" = -c ]; then
case "$2" in *sysconfig*) echo /nowhere;; *) echo 9.9;; esac; exit 0
fi
{weights if writes_weights else ""}
case "$*" in
*torch_attention*) echo '{attention}';;
*--turns*) echo compiling; echo '{{"ready": true}}'; while read go; do {ends} echo '{answer}'; done;;
*) echo '{answer}';;
esac""")

    def check(self, *arguments):
        """Exit code, what it printed and the results by part."""
        out = self.folder / "out"
        done = subprocess.run(
            [TOOL, "--build", self.bin.parent, "--no-build", "--out", out, "--python", self.bin / "python",
             "--device", "cpu", *arguments], capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"})
        return done.returncode, done.stdout + done.stderr, self.results(out)

    @staticmethod
    def results(out):
        path = pathlib.Path(out) / "results.json"
        return json.loads(path.read_text())["parts"] if path.exists() else {}

    def test_says_what_it_would_do_and_does_nothing(self):
        code, text, results = self.check("--dry-run")
        self.assertEqual((code, results), (0, {}))
        for name, _, _ in parts.PARTS:
            self.assertIn(name, text)
        self.assertIn("at most 540 s, 0.150 GPU h", text)

    def test_passes_where_all_passes_and_keeps_what_it_found(self):
        self.fake("kernels_gpu_test", "echo '3 cases: 3 passed, 0 failed, 0 skipped, 0 not run'")
        self.fake("comm_gpu_test", "echo '2 cases: 2 passed, 0 failed, 0 skipped'")
        self.fake("train_gpu_test", "echo '[  PASSED  ] 9 tests.'")
        code, text, results = self.check("--only", "facts,gpu-tests,compare,speed,kernels,attention,settings")
        self.assertEqual(code, 0, text)
        self.assertEqual(results["facts"]["torch"], "9.9")
        self.assertEqual(results["gpu-tests"]["status"], "passed")
        self.assertTrue(results["compare"]["sameTwice_bf16"])
        self.assertEqual(results["compare"]["fp32Relative"], 0)
        row = results["speed"]["rows"][0]
        self.assertEqual(row["oursTokensPerSecond"], 1000)
        self.assertEqual((row["ratio"], len(row["ours"]), len(row["torch"])), (1.25, 2, 2))
        self.assertEqual(results["kernels"]["fp32"], ROWS)
        self.assertEqual(results["attention"]["ours"]["1x16x2x16x2"], [2e-6, 2e-6])
        self.assertEqual(results["attention"]["others"]["flash"]["1x16x2x16x2"]["backward"], 2e-6)
        self.assertEqual(len(results["settings"]["rows"]), 2)
        table = (self.folder / "out/table.txt").read_text()
        self.assertIn("attention 1x16x2x16x2        ours 2.0 + 2.0 us, flash 1.0 + 2.0", table)
        self.assertIn("tiny 4x16: ours 1,000 tok/s", table)
        self.assertEqual(table.splitlines()[-2].split()[:2], ["settings", "passed"])
        self.assertIn(table, text)

    def test_what_it_keeps_is_three_small_files_anew_after_each_part(self):
        self.fake("kernels_gpu_test",
                  f"head -c {MANY} /dev/zero; echo; echo '3 cases: 3 passed, 0 failed, 0 skipped, 0 not run'")
        self.fake("train_gpu_test", "echo '[  PASSED  ] 9 tests.'")
        self.fake("comm_gpu_test", f"ls {self.folder}/out; cat {self.folder}/out/table.txt")
        code, text, _ = self.check("--only", "facts,gpu-tests")
        self.assertEqual(code, 0, text)
        files = {path.name: path.stat().st_size for path in (self.folder / "out").iterdir()}
        self.assertEqual(sorted(files), FILES)
        self.assertLess(max(files.values()), 2 << 20)
        log = (self.folder / "out/log.txt").read_text()
        self.assertIn("facts        passed", log, "the table was there while the next part ran")
        self.assertIn("results.json", log)

    def test_says_by_its_exit_code_that_parts_were_skipped(self):
        code, text, results = self.check("--only", "build,gpu-tests,sanitize")
        self.assertEqual(code, 77, text)
        self.assertEqual({name: one["status"] for name, one in results.items()},
                         {"build": "skipped", "gpu-tests": "skipped", "sanitize": "skipped"})
        self.assertIn("3 skipped", results["gpu-tests"]["what"])

    def test_a_part_that_fails_is_named_and_the_others_go_on(self):
        self.fake("kernels_gpu_test", "echo '3 cases: 2 passed, 1 failed, 0 skipped, 0 not run'; exit 1")
        self.fake("bench_step", "echo 'bench_step: no memory'; exit 1")
        code, text, results = self.check("--only", "gpu-tests,speed,kernels")
        self.assertEqual(code, 1)
        self.assertEqual(results["gpu-tests"]["status"], "failed")
        self.assertEqual(results["speed"]["status"], "failed")
        self.assertIn("bench_step: no memory", results["speed"]["what"])
        self.assertEqual(results["kernels"]["status"], "passed")

    def test_cases_after_one_that_broke_the_device_run_in_a_new_process(self):
        """Its cases are ok, broken, ok, a crash, ok."""
        self.fake("kernels_gpu_test", """case $2 in
0) printf 'a: ok\nb: FAILED: lost\nthe device is lost: x\nc: not run after a broken context\n'
   echo '5 cases: 1 passed, 1 failed, 0 skipped, 3 not run'; exit 1;;
2) echo 'c: ok'; exit 139;;
4) printf 'e: ok\n1 cases: 1 passed, 0 failed, 0 skipped, 0 not run\n';;
esac""")
        code, _, results = self.check("--only", "gpu-tests")
        self.assertEqual((code, results["gpu-tests"]["status"]), (1, "failed"))
        found = results["gpu-tests"]["kernels_gpu_test"]
        self.assertEqual(found, {"passed": 3, "failed": ["b: FAILED: lost", "exit code 139 in the case after 3"]})

    def test_cases_that_failed_are_told_though_the_device_is_gone_afterwards(self):
        self.fake("kernels_gpu_test", """case $2 in
0) printf 'a: FAILED: lost\nthe device is lost: x\nb: not run after a broken context\n'
   echo '2 cases: 0 passed, 1 failed, 0 skipped, 1 not run'; exit 1;;
1) echo 'no device can be used'; exit 1;;
esac""")
        code, _, results = self.check("--only", "gpu-tests")
        self.assertEqual((code, results["gpu-tests"]["status"]), (1, "failed"))
        self.assertEqual(results["gpu-tests"]["kernels_gpu_test"],
                         {"passed": 0, "failed": ["a: FAILED: lost", "the rest did not run: no device can be used"]})

    def test_a_program_that_is_not_there_is_a_failure(self):
        (self.bin / "bench_kernels").unlink()
        code, _, results = self.check("--only", "kernels")
        self.assertEqual((code, results["kernels"]["status"]), (1, "failed"))

    def test_what_takes_too_long_is_cut_with_all_that_it_started(self):
        self.fake("kernels_gpu_test", f"sleep 1000 & echo $! >{self.folder}/pid; wait")
        code, text, results = self.check("--only", "gpu-tests,kernels", "--limit", "7")
        self.assertEqual(code, 1)
        self.assertEqual(results["gpu-tests"]["status"], "cut", text)
        self.assertEqual(results["kernels"]["status"], "cut")
        self.assertIn("no time was left", results["kernels"]["what"])
        pid = int((self.folder / "pid").read_text())
        state = pathlib.Path(f"/proc/{pid}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z")

    def test_a_program_that_prints_no_result_has_failed(self):
        self.fake("bench_step", "echo nothing")
        code, _, results = self.check("--only", "speed")
        self.assertEqual((code, results["speed"]["status"]), (1, "failed"))
        self.fake("bench_kernels", "true")
        code, _, results = self.check("--only", "kernels,attention")
        self.assertEqual((code, results["kernels"]["status"], results["attention"]["status"]), (1, "failed", "failed"))

    def test_rows_that_were_measured_are_kept_where_others_fail_or_are_cut(self):
        self.fake("bench_kernels", self.kernels() + "; echo 'gelu_forward FAILED: no memory'; exit 1")
        code, _, results = self.check("--only", "kernels")
        self.assertEqual((code, results["kernels"]["status"]), (1, "failed"))
        self.assertIn("4 rows in fp32, gelu_forward FAILED", results["kernels"]["what"])
        self.assertEqual(results["kernels"]["fp32"], ROWS)

    def test_without_pytorch_ours_is_measured_alone_and_nothing_compared(self):
        self.fake("python", "exit 1")
        code, _, results = self.check("--only", "compare,speed")
        self.assertEqual(code, 77)
        self.assertEqual(results["compare"]["status"], "skipped")
        self.assertEqual(results["speed"]["status"], "skipped")
        self.assertEqual(results["speed"]["rows"][0]["oursTokensPerSecond"], 1000)

    def test_a_gpu_that_is_visible_but_unusable_fails_and_skips_nothing(self):
        self.fake("nvidia-smi", "echo NVIDIA H200")
        for name in ("kernels_gpu_test", "comm_gpu_test", "train_gpu_test", "bench_step", "bench_kernels"):
            self.fake(name, f"echo '{name}: CUDA driver version is insufficient'; exit 77")
        code, text, results = self.check("--device", "cuda", "--only",
                                         "facts,gpu-tests,compare,speed,kernels,attention")
        self.assertEqual(code, 1)
        for name in ("gpu-tests", "compare", "speed", "kernels", "attention"):
            self.assertEqual(results[name]["status"], "failed", text)
            self.assertIn("insufficient", results[name]["what"])

    def test_a_pytorch_that_sees_no_gpu_is_told(self):
        self.fake("nvidia-smi", "echo NVIDIA H200")
        self.fake("python", '[ "$2" = "${2#*device_count}" ] && echo 9.9 || echo GPUs: 0')
        code, _, results = self.check("--only", "facts")
        self.assertEqual((code, results["facts"]["status"]), (1, "failed"))
        self.assertIn("PyTorch sees no GPU", results["facts"]["what"])

    def test_a_pytorch_that_dies_between_turns_leaves_ours_measured(self):
        self.python(json.dumps(TORCH), ends="echo 'out of memory' >&2; exit 3;")
        code, _, results = self.check("--only", "speed")
        self.assertEqual((code, results["speed"]["status"]), (1, "failed"))
        self.assertIn("out of memory", results["speed"]["what"])
        self.assertEqual(results["speed"]["rows"][0]["oursTokensPerSecond"], 1000)

    def test_ours_is_tried_again_without_pytorch_where_it_failed_beside_it(self):
        self.fake("bench_step", f"if [ -e {self.folder}/tried ]; then echo '{json.dumps(STEP)}'; "
                                f"else : >{self.folder}/tried; echo no memory; exit 1; fi")
        code, text, results = self.check("--only", "speed")
        self.assertEqual(code, 0, text)
        row = results["speed"]["rows"][0]
        self.assertEqual((len(row["ours"]), len(row["torch"]), row["ratio"]), (2, 1, 1.25))

    def test_a_device_that_training_does_not_know_is_skipped(self):
        self.fake("bench_step", "echo 'bench_step: training on a GPU is not in this version'; exit 77")
        code, _, results = self.check("--only", "compare,speed")
        self.assertEqual(code, 77)
        self.assertIn("not in this version", results["compare"]["what"])
        self.assertEqual(results["speed"]["status"], "skipped")

    def test_only_takes_parts_that_there_are(self):
        code, text, _ = self.check("--only", "speed,sped")
        self.assertEqual(code, 2)
        self.assertIn("sped", text)

    def test_the_models_that_are_asked_for_are_measured(self):
        code, _, results = self.check("--only", "speed", "--models", "gpt2-1.5b")
        self.assertEqual((code, results["speed"]["rows"]), (77, []))


@unittest.skipUnless("LOCKSTEP_BUILD" in os.environ, "without LOCKSTEP_BUILD there are no programs")
class RealPrograms(unittest.TestCase):
    def test_measure_and_judge_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [TOOL, "--build", os.environ["LOCKSTEP_BUILD"], "--no-build", "--out", out, "--device", "cpu",
                 "--python", "/bin/false", "--only", "facts,gpu-tests,speed,kernels,attention", "--limit", "240"],
                capture_output=True, text=True)
            results = GpuCheck.results(out)
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertIn(results["gpu-tests"]["status"], ("passed", "skipped"), results["gpu-tests"]["what"])
        self.assertGreater(results["speed"]["rows"][0]["oursTokensPerSecond"], 0)
        self.assertEqual(results["kernels"]["status"], "passed")
        self.assertGreater(min(results["attention"]["ours"]["1x80x2x64x1"]), 0)

    def test_are_rehearsed_on_the_emulated_gpu(self):
        """All but kernels_gpu_test, of which kernels_emulated_ops_test has the cases."""
        if not (pathlib.Path(os.environ["LOCKSTEP_BUILD"]) / "bin/tests/emulated_bench_kernels").exists():
            self.skipTest("this build has no emulated GPU")
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [TOOL, "--build", os.environ["LOCKSTEP_BUILD"], "--no-build", "--out", out, "--rehearse", "--python",
                 "/bin/false", "--only", "facts,speed,kernels,attention,sanitize", "--limit", "280"],
                capture_output=True, text=True)
            results = GpuCheck.results(out)
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertEqual(results["sanitize"]["status"], "passed", results["sanitize"]["what"])
        self.assertEqual(results["kernels"]["status"], "passed", results["kernels"]["what"])
        self.assertEqual(results["kernels"]["bf16"][0]["device"], "emulated")
        row = results["speed"]["rows"][0]
        self.assertEqual(row["ours"][0]["device"], "cuda")
        self.assertGreater(min(row["ours"][0]["partSeconds"].values()), 0)
        self.assertGreater(row["oursOthers"][0]["tokensPerSecond"], 0)
        self.assertGreater(min(results["attention"]["ours"]["1x80x2x64x1"]), 0)
        self.assertEqual(results["attention"]["status"], "skipped", "for want of PyTorch alone")
        self.assertEqual(results["attention"]["what"], "no PyTorch beside it")
        with_cudnn = results["attention"]["others"]["our cuDNN"]
        self.assertNotIn("1x16x2x16x2", with_cudnn, "its heads are not for cuDNN")


class WithoutCudnn(unittest.TestCase):
    """What cuDNN hasn't got is left out, and said; what it breaks is a failure."""

    class Check:
        """On a GPU without PyTorch: its programs end so, for cuDNN's attention."""
        device, sizes, torch, models, least_seconds, threads = "cuda", "cpu", None, None, 1, 1
        budget = runner.Budget(100)

        def __init__(self, outcome, rows, scratch):
            self.outcome, self.rows, self.scratch = outcome, rows, pathlib.Path(scratch)

        def program(self, name):
            return name

        def of_cudnn(self, command):
            return "cudnn" in command

        def json(self, command):
            if self.of_cudnn(command):
                return self.outcome, None
            return runner.Outcome(0, "", 1), {**STEP, "memoryBytes": 1}

        def run(self, command):
            rows = self.rows if self.of_cudnn(command) else ROWS
            file = command[command.index("--json") + 1]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            return self.outcome if self.of_cudnn(command) else runner.Outcome(0, "", 1)

    def attention(self, code, rows, words="attention_backward B=1 left out: [cudnn] no kernel"):
        with tempfile.TemporaryDirectory() as scratch:
            return rooflines.attention(self.Check(runner.Outcome(code, words, 1, needs_device=True), rows, scratch))

    def test_attention_goes_on_without_it(self):
        left_out = [{"op": row["op"], "sizes": "B=1", "leftOut": "no kernel"} for row in ROWS[1:]]
        found = self.attention(78, ROWS[:1] + left_out)
        self.assertEqual(found.status, "skipped")
        self.assertIn("with cuDNN: attention_backward B=1 left out: [cudnn] no kernel", found.what)
        self.assertEqual(len(found.values["ours"]), 2)
        found = self.attention(78, ROWS[:3] + left_out[2:])
        self.assertEqual(found.what, "no PyTorch beside it", "one shape of two is for it")
        self.assertEqual(len(found.values["others"]["our cuDNN"]), 1)

    def test_attention_fails_where_it_breaks(self):
        for code in (1, -11, 0):  # 0: it passes and has measured nothing
            self.assertEqual(self.attention(code, ROWS[:1]).status, "failed", code)
        self.assertEqual(self.attention(None, ROWS[:3]).status, "cut")

    def test_speed_goes_on_without_it(self):
        def measured(code):
            size = {"preset": "gpt2-124m", "batch": 4, "context": 16, "compile": ""}
            measurement = speed.Measurement(self.Check(runner.Outcome(code, "bench_step: [cudnn] none", 1, True), [], "."))
            return measurement.all([size])
        self.assertEqual(measured(78).status, "skipped")
        self.assertIn("ours with attention cudnn: bench_step: [cudnn] none", measured(78).what)
        self.assertIn("gpt2-124m 1,000 tok/s", measured(78).what)
        self.assertEqual(measured(1).status, "failed")


class Judgement(unittest.TestCase):
    def curves(self, ours_fp32=4.0, ours_bf16=4.01, torch_bf16=4.01):
        return {("ours", "fp32"): [ours_fp32], ("torch", "fp32"): [4.0], ("ours", "bf16"): [ours_bf16],
                ("torch", "bf16"): [torch_bf16]}

    def wrong(self, curves, digests=None):
        return compare.judge(curves, digests or {"fp32": ["a", "a"], "bf16": ["b", "b"]})[0]

    def test_bounds_hold_on_both_sides(self):
        self.assertEqual(self.wrong(self.curves()), [])
        self.assertEqual(self.wrong(self.curves(ours_fp32=4.0003)), [])
        self.assertIn("fp32 differs", self.wrong(self.curves(ours_fp32=4.0005))[0])
        self.assertEqual(self.wrong(self.curves(ours_bf16=4.0199)), [])
        self.assertIn("bf16 is", self.wrong(self.curves(ours_bf16=4.0201))[0])
        self.assertIn("twice differs in bf16", self.wrong(self.curves(), {"bf16": ["a", "b"]})[0])
        self.assertIn("fp32 differs", self.wrong(self.curves(ours_fp32=float("nan")))[0])

    def test_a_row_has_every_peak_that_is_known(self):
        one = {**STEP, "peakFlopsPerSecond": {"datasheet": 1e10, "measured": 8e9}}
        row = speed.row_of({"preset": "x"}, [one, {**one, "tokensPerSecond": 3000.0}], [])
        self.assertEqual(row["oursTokensPerSecond"], 2000)
        self.assertAlmostEqual(row["palmOf_datasheet"], 0.4)
        self.assertAlmostEqual(row["causalOf_measured"], 0.25)
        self.assertNotIn("ratio", row)

    def test_the_table_names_the_kernels_that_lose_most(self):
        rows = [{"op": name, "sizes": "n=1", "seconds": seconds, "boundSeconds": 1.0, "boundBy": "memory",
                 "percentOfBound": 100 / seconds} for name, seconds in (("a", 2.0), ("b", 5.0), ("c", 1.5))]
        self.assertEqual([line.split()[0] for line in rooflines.slowest(rows)], ["b", "a", "c"])

    def test_it_is_built_for_the_gpu_alone(self):
        self.assertEqual([parts.architecture(one) for one in ("9.0", "8.0", "8.9", "10.0", "", None)],
                         ["90a", "80", "89", "100a", None, None])

    def test_the_log_keeps_its_beginning_and_its_end(self):
        data = b"a" * check_module.LOG_BYTES + b"b" * check_module.LOG_BYTES
        kept = check_module.cropped(data)
        self.assertLess(len(kept), check_module.LOG_BYTES + 100)
        self.assertEqual((kept[:1], kept[-1:]), (b"a", b"b"))
        self.assertEqual(check_module.cropped(b"short"), b"short")

    def test_a_sanitizer_that_knows_no_such_device_is_skipped_and_one_that_finds_something_fails(self):
        def status(code, text):
            return parts.verdict_of_sanitizer(runner.Outcome(code, text, 1.0, True)).status
        self.assertEqual(status(1, "Error: Device not supported. Please refer"), "skipped")
        self.assertEqual(status(1, "ERROR SUMMARY: 3 errors"), "failed")
        self.assertEqual(status(0, "ERROR SUMMARY: 0 errors"), "passed")

    def test_the_parts_fit_where_none_is_late(self):
        late = ("speed-others", "sanitize", "settings", "tests")
        together = sum(seconds for name, seconds, _ in parts.PARTS if name not in late)
        self.assertLessEqual(together, check_module.LIMIT)
        now = [0.0]
        budget = runner.Budget(100, lambda: now[0])
        budget.begin(30)
        now[0] = 20
        self.assertEqual(budget.left(), 10)
        now[0] = 40
        self.assertEqual(budget.left(), 0)
        budget.begin(90)
        self.assertEqual(budget.left(), 60)


if __name__ == "__main__":
    unittest.main()
