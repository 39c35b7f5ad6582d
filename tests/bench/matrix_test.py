#!/usr/bin/env python3
"""The matrices of bench/train: the meshes they list, comparisons that fail, and results that are kept. Runs no job.

Also the schedules of pipelines that bench/train plays, and their picture.
"""
import argparse
import collections
import contextlib
import io
import json
import pathlib
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/train"))
import matrix_cells  # noqa: E402
import matrix_runs  # noqa: E402
import mesh_cells  # noqa: E402
import mesh_matrix  # noqa: E402
import schedule_picture  # noqa: E402
import sharding_cells  # noqa: E402
import sharding_matrix  # noqa: E402
import sharding_modes  # noqa: E402

STEPS = 4
WEIGHTS = [1.0, 2.0, 3.0, 4.0]
Cell = collections.namedtuple("Cell", "kind name")


def everything(matrix, **more):
    return argparse.Namespace(sample=0, seed=1, kinds=list(matrix.kinds), **matrix.known, **more)


def write_run(folder, weights=WEIGHTS, loss=2.0):
    """Writes a finished job of STEPS steps, with one tensor of four values."""
    step = folder / f"checkpoints/step-{STEPS:08}"
    step.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (step / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<4f", *weights))
    (step / "manifest.json").write_text(json.dumps({
        "files": [{"name": "model.safetensors"}], "step": STEPS, "samples": 0, "weightsSeed": 1, "dataSeed": 1,
        "loss": loss}))
    lines = [{"step": number + 1, "loss": loss} for number in range(STEPS)]
    lines += [{"step": number, "validationLoss": loss} for number in (STEPS // 2, STEPS)]
    (folder / "checkpoints/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


class Meshes(unittest.TestCase):
    def setUp(self):
        self.cells = matrix_cells.cells_of(mesh_matrix.MATRIX, everything(mesh_matrix.MATRIX))
        self.training = [cell.way for cell in self.cells if cell.kind == "training"]

    def test_every_mesh_trains_in_every_way(self):
        wanted = {(t, p, d) for t in range(1, 9) for p in range(1, 9) for d in range(1, 9) if t * p * d <= 8}
        self.assertEqual(len(wanted), 38)
        self.assertEqual({tuple(way.mesh) for way in self.training}, wanted)
        ways = {(way.family, way.schedule, way.sharding, way.rows) for way in self.training if way.mesh == (2, 2, 2)}
        self.assertEqual(len(ways), 2 * (2 * 5 + 2 * 4) * 2)  # zerobubble with two of the shardings

    def test_every_mesh_divides_its_model_and_its_batch(self):
        ways = [way for cell in self.cells for way in (cell.way, cell.then) if way]
        for way in ways:
            setup = mesh_matrix.setup(way)
            tensor, pipeline, data = way.mesh
            model, batch = setup.model, setup.batch
            self.assertEqual(setup.nodes * setup.per_node, tensor * pipeline * data)
            self.assertEqual(setup.per_node % tensor, 0, setup.name)
            shared = model.get("kvHeads", tensor)
            self.assertEqual([model["heads"] % tensor, max(shared, tensor) % min(shared, tensor)], [0, 0], setup.name)
            self.assertEqual(model["context"] % tensor, 0, setup.name)
            self.assertGreaterEqual(model["layers"], pipeline * setup.parallelism.get("virtualStages", 1))
            self.assertEqual(batch["global"] % (batch["micro"] * data), 0, setup.name)
            micro_batches = batch["global"] // (batch["micro"] * data)
            self.assertGreaterEqual(micro_batches, 2 * pipeline, setup.name)
            if way.schedule == "interleaved":
                self.assertEqual(micro_batches % pipeline, 0, setup.name)

    def test_both_meshes_of_a_move_have_the_same_model(self):
        for cell in self.cells:
            if cell.kind == "moved":
                first, then = mesh_matrix.setup(cell.way), mesh_matrix.setup(cell.then)
                self.assertEqual((first.model, first.batch["global"]), (then.model, then.batch["global"]))

    def test_names_of_cells_are_unique(self):
        options = everything(sharding_matrix.MATRIX, modes=list(sharding_modes.MODES))
        sharding = matrix_cells.cells_of(sharding_matrix.MATRIX, options)
        self.assertEqual(len(sharding), 780)
        for cells, name_of in ((self.cells, mesh_cells.name_of), (sharding, sharding_cells.name_of)):
            self.assertEqual(len(set(map(name_of, cells))), len(cells))

    def test_a_smaller_choice_is_part_of_the_whole(self):
        options = everything(mesh_matrix.MATRIX)
        options.shardings, options.ranks = ["optimizer"], [2, 4]
        self.assertLess(len(matrix_cells.cells_of(mesh_matrix.MATRIX, options)), len(self.cells) // 4)
        options.sample = 2
        kinds = collections.Counter(cell.kind for cell in matrix_cells.cells_of(mesh_matrix.MATRIX, options))
        self.assertEqual(kinds, dict.fromkeys(mesh_matrix.MATRIX.kinds, 2))


class Schedules(unittest.TestCase):
    def passes(self, schedule, stages, stage, micro_batches):
        found = schedule_picture.passes(schedule, stages, stage, micro_batches)
        return " ".join(f"{one.kind}{one.micro_batch}" for one in found)

    def test_they_are_those_of_pipeline_schedule_test(self):
        self.assertEqual(self.passes("naive", 2, 0, 2), "F0 B0 F1 B1")
        self.assertEqual(self.passes("gpipe", 2, 0, 3), "F0 F1 F2 B0 B1 B2")
        self.assertEqual([self.passes("1f1b", 3, stage, 4) for stage in range(3)],
                         ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"])
        self.assertEqual([self.passes("zerobubble", 3, stage, 4) for stage in range(3)],
                         ["F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3", "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3",
                          "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"])

    def test_idle_shares_and_micro_batches_in_flight_follow_their_formulas(self):
        for p in (1, 2, 3, 4, 8):
            for m in (1, 2, 3, 8, 16):
                idle = {"naive": 1 - 1 / p, "gpipe": (p - 1) / (m + p - 1), "1f1b": (p - 1) / (m + p - 1)}
                if m >= p:  # (p - 1)(F + B - W) of m (F + B + W) and as much
                    idle["zerobubble"] = (p - 1) / (3 * m + p - 1)
                for schedule in idle:
                    self.assertAlmostEqual(schedule_picture.idle_share(schedule, p, m), idle[schedule], places=9)
                for stage in range(p):
                    kept = [schedule_picture.in_flight(name, p, stage, m) for name in schedule_picture.SCHEDULES]
                    self.assertEqual(kept, [1, m, min(m, p - stage), min(m, p)])

    def test_an_interleaved_stage_runs_its_chunks_in_turns(self):
        found = schedule_picture.interleaved(2, 0, 2)
        self.assertEqual(" ".join(f"{one.kind}{one.micro_batch}" + "'" * one.chunk for one in found),
                         "F0 F1 F0' F1' B0' B1' B0 B1")
        for p, m in ((2, 4), (4, 8)):
            self.assertAlmostEqual(schedule_picture.idle_share("interleaved", p, m), (p - 1) / (2 * m + p - 1))

    def test_the_picture_is_drawn_from_them(self):
        self.assertEqual((ROOT / "docs/images/schedules.svg").read_text(), schedule_picture.picture())


class Comparisons(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runs = argparse.Namespace(steps=STEPS)
        self.wanted = write_run(self.folder / "wanted")

    def test_finds_a_weight_beyond_the_bound(self):
        near = write_run(self.folder / "near", [1.0, 2.0, 3.0, 4.00002])
        found = matrix_runs.expect_close("it", self.runs, near, self.wanted, 1e-5)
        self.assertGreater(found["parameters"], 1e-6)
        far = write_run(self.folder / "far", [1.0, 2.0, 3.0, 4.0001])
        with self.assertRaisesRegex(matrix_runs.Wrong, "w by 1.8e-05, expected at most 1e-05"):
            matrix_runs.expect_close("it", self.runs, far, self.wanted, 1e-5)

    def test_finds_a_loss_beyond_the_bound_and_one_that_is_missing(self):
        with self.assertRaisesRegex(matrix_runs.Wrong, "losses differ by 5.0e-05"):
            matrix_runs.expect_close("it", self.runs, write_run(self.folder / "a", loss=2.0001), self.wanted, 1e-5)
        metrics = self.wanted / "checkpoints/metrics.jsonl"
        metrics.write_text("".join(metrics.read_text().splitlines(True)[1:]))
        with self.assertRaisesRegex(matrix_runs.Wrong, "5 losses, expected 6"):
            matrix_runs.losses(self.wanted, STEPS)

    def test_finds_one_bit(self):
        matrix_runs.expect_same_runs("it", write_run(self.folder / "same"), self.wanted)
        other = write_run(self.folder / "other", [1.0, 2.0, 3.0, 4.0000005])
        with self.assertRaisesRegex(matrix_runs.Wrong, "1 of .* differ: .*/w"):
            matrix_runs.expect_same_runs("it", other, self.wanted)


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/lockstep-worker").write_bytes(b"a worker")
        self.wrong, self.ran = {"b"}, []
        self.matrix = matrix_cells.Matrix(
            kinds={"some": lambda options: [Cell("some", name) for name in "abc"]},
            checks={"some": self.check}, name_of=lambda cell: cell.name, steps=STEPS, known={})

    def check(self, runs, cell):
        self.ran.append(cell.name)
        if cell.name in self.wrong:
            raise matrix_runs.Wrong("not the same")
        return {}

    def run_matrix(self):
        arguments = ["--build", str(self.folder), "--results", str(self.folder / "results")]
        options = matrix_cells.parser(self.matrix, "a matrix").parse_args(arguments)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            code = matrix_cells.run(self.matrix, options)
        return code, text.getvalue()

    def test_cells_that_passed_are_skipped_and_others_run_again(self):
        code, text = self.run_matrix()
        self.assertEqual(code, 1)
        self.assertIn("b: FAILED: not the same", text)
        self.assertIn("2 of 3 cells passed, 0 of them before", text)
        self.wrong, self.ran = set(), []
        code, text = self.run_matrix()
        self.assertEqual((code, self.ran), (0, ["b"]))
        self.assertIn("3 of 3 cells passed, 2 of them before", text)

    def test_a_result_that_was_cut_off_counts_as_none(self):
        self.wrong = set()
        self.run_matrix()
        results, = self.folder.glob("results/*/cells.jsonl")
        results.write_text(results.read_text()[:-5])
        self.ran = []
        self.assertEqual(self.run_matrix()[0], 0)
        self.assertEqual(self.ran, ["c"])
        self.assertEqual(matrix_cells.passed_before(results), {"a", "b", "c"})


if __name__ == "__main__":
    unittest.main()
