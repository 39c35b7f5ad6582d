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
import runner  # noqa: E402
import speed  # noqa: E402

STEP = {"tokensPerSecond": 1000.0, "firstStepSeconds": 0.5, "batch": 4, "palmFlopsPerToken": 2e6,
        "causalFlopsPerToken": 1e6, "losses": [4.0] * compare.STEPS, "parametersSha256": "ab"}
TORCH = {"tokensPerSecond": 800.0, "firstStepSeconds": 9.0, "batch": 4, "losses": [4.0] * compare.STEPS}


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "build/bin"
        self.bin.mkdir(parents=True)
        self.fake("kernels_gpu_test", "echo '3 cases: 0 passed, 0 failed, 3 skipped'; exit 77")
        self.fake("comm_gpu_test", "echo '2 cases: 0 passed, 0 failed, 2 skipped'; exit 77")
        self.fake("bench_kernels", "echo 'gelu forward   1.0 us [ 1 2]'")
        self.fake("bench_step", f"echo '{json.dumps(STEP)}'")
        self.fake("nvidia-smi", "exit 9")
        self.python(json.dumps(TORCH))

    def fake(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def python(self, answer, writes_weights=True):
        """A python with a PyTorch of its own."""
        weights = 'for word; do case "$last" in --weights-out) : >"$word";; esac; last=$word; done'
        self.fake("python", f'[ "$1" != -c ] || {{ echo 9.9; exit 0; }}\n{weights if writes_weights else ""}\n'
                            f"echo '{answer}'")

    def check(self, *arguments):
        """Exit code, what it printed and the results by part."""
        out = self.folder / "out"
        done = subprocess.run(
            [TOOL, "--build", self.bin.parent, "--no-build", "--out", out, "--python", self.bin / "python",
             "--device", "cpu", *arguments], capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"})
        results = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
        return done.returncode, done.stdout + done.stderr, results

    def test_says_what_it_would_do_and_does_nothing(self):
        code, text, results = self.check("--dry-run")
        self.assertEqual((code, results), (0, {}))
        for name, _, _ in parts.PARTS:
            self.assertIn(name, text)
        self.assertIn("at most 540 s", text)

    def test_passes_where_all_passes_and_keeps_what_it_found(self):
        self.fake("kernels_gpu_test", "echo '3 cases: 3 passed, 0 failed, 0 skipped'")
        self.fake("comm_gpu_test", "echo '2 cases: 2 passed, 0 failed, 0 skipped'")
        code, text, results = self.check("--only", "facts,gpu-tests,compare,speed,kernels")
        self.assertEqual(code, 0, text)
        self.assertEqual(results["summary"]["exitCode"], 0)
        self.assertEqual(results["facts"]["torch"], "9.9")
        self.assertEqual(results["gpu-tests"]["status"], "passed")
        self.assertTrue(results["compare"]["sameTwice_bf16"])
        self.assertEqual(results["compare"]["fp32Relative"], 0)
        row = results["speed"]["rows"][0]
        self.assertEqual(row["oursTokensPerSecond"], 1000)
        self.assertEqual(row["ratio"], 1.25)
        self.assertEqual(len(results["kernels"]["rows"]), 1)
        table = (self.folder / "out/table.txt").read_text()
        self.assertEqual(table.splitlines()[-2].split()[:2], ["kernels", "passed"])
        self.assertIn(table, text)

    def test_says_by_its_exit_code_that_parts_were_skipped(self):
        code, text, results = self.check("--only", "build,gpu-tests,sanitize")
        self.assertEqual(code, 77, text)
        self.assertEqual({name: one["status"] for name, one in results.items() if name != "summary"},
                         {"build": "skipped", "gpu-tests": "skipped", "sanitize": "skipped"})
        self.assertIn("3 skipped", results["gpu-tests"]["what"])

    def test_a_part_that_fails_is_named_and_the_others_go_on(self):
        self.fake("kernels_gpu_test", "echo '3 cases: 2 passed, 1 failed, 0 skipped'; exit 1")
        self.fake("bench_step", "echo 'bench_step: no memory'; exit 1")
        code, text, results = self.check("--only", "gpu-tests,speed,kernels")
        self.assertEqual(code, 1)
        self.assertEqual(results["gpu-tests"]["status"], "failed")
        self.assertEqual(results["speed"]["status"], "failed")
        self.assertIn("bench_step: no memory", results["speed"]["what"])
        self.assertEqual(results["kernels"]["status"], "passed")

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
        code, _, results = self.check("--only", "kernels")
        self.assertEqual((code, results["kernels"]["status"]), (1, "failed"))

    def test_without_pytorch_ours_is_measured_alone_and_nothing_compared(self):
        self.fake("python", "exit 1")
        code, _, results = self.check("--only", "compare,speed")
        self.assertEqual(code, 77)
        self.assertEqual(results["compare"]["status"], "skipped")
        self.assertEqual(results["speed"]["status"], "skipped")
        self.assertEqual(results["speed"]["rows"][0]["oursTokensPerSecond"], 1000)

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
                 "--python", "/bin/false", "--only", "facts,gpu-tests,speed,kernels", "--limit", "240"],
                capture_output=True, text=True)
            results = {path.stem: json.loads(path.read_text()) for path in pathlib.Path(out).glob("*.json")}
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertIn(results["gpu-tests"]["status"], ("passed", "skipped"), results["gpu-tests"]["what"])
        self.assertGreater(results["speed"]["rows"][0]["oursTokensPerSecond"], 0)
        self.assertEqual(results["kernels"]["status"], "passed")


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
        row = speed.row_of({"preset": "x"}, [one, {**one, "tokensPerSecond": 3000.0}], None)
        self.assertEqual(row["oursTokensPerSecond"], 2000)
        self.assertAlmostEqual(row["palmOf_datasheet"], 0.4)
        self.assertAlmostEqual(row["causalOf_measured"], 0.25)
        self.assertNotIn("ratio", row)

    def test_the_parts_fit_where_none_is_late(self):
        together = sum(seconds for name, seconds, _ in parts.PARTS if name not in ("build", "tests", "sanitize"))
        self.assertLess(together, check_module.LIMIT)
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
