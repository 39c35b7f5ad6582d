#!/usr/bin/env python3
"""The model of bench/train/mesh_scaling.py: what it computes for one process, and without a network. Runs no job."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/train"))
import local_job  # noqa: E402
import mesh_formulas  # noqa: E402
import mesh_scaling  # noqa: E402
import scaling_jobs  # noqa: E402
import scaling_model  # noqa: E402
from scaling_jobs import OPERATIONS, STRATEGIES  # noqa: E402
from scaling_model import Network, Times  # noqa: E402

TIMES = Times(forward=1.0, backward=2.0, update=0.5, rest=0.25)
# A head without width, so that stages with the same number of layers are equal.
EQUAL = scaling_jobs.FULL._replace(vocabulary=0)
NAMES = ("send", "all_reduce", "all_gather", "reduce_scatter")


def network(latency=0.0, bytes_per_second=1e30):
    """Returns a network between two processes with the same speed for all sizes."""
    found = {}
    for name in NAMES:
        steps, share = scaling_model.work_of(name, 2)
        found[name] = {size: steps * latency + share * size / bytes_per_second for size in (1 << 10, 1 << 20, 1 << 23)}
        found[name][8] = latency
    return Network(2, found)


def step(name, ranks, sizes=EQUAL, times=TIMES, net=None):
    return scaling_model.step(STRATEGIES[name], ranks, sizes, times, net or network())


def micro_batches(sizes):
    return sizes.samples // sizes.micro


class Model(unittest.TestCase):
    def test_one_process_takes_its_own_time(self):
        for name in STRATEGIES:
            one = step(name, 1, scaling_jobs.FULL, net=network(1e-3, 1e6))
            self.assertAlmostEqual(one.total, 8 * 3.0 + 0.75, places=9, msg=name)
            self.assertEqual((one.exposed, one.idle), (0, 0), name)
            self.assertAlmostEqual(one.waits, 0, places=9)

    def test_idle_shares_are_those_of_the_documentation(self):
        times = TIMES._replace(update=0, rest=0)
        for p in (2, 4, 8):
            for samples in (16, 64):
                sizes = EQUAL._replace(samples=samples)
                m = micro_batches(sizes)
                expected = {"1f1b": (p - 1) / (m + p - 1), "gpipe": (p - 1) / (m + p - 1),
                            "interleaved": (p - 1) / (2 * m + p - 1), "zerobubble": (p - 1) / (3 * m + p - 1),
                            "pipedream": 0}
                for schedule, idle in expected.items():
                    one = step("pipeline, " + schedule, p, sizes, times)
                    self.assertAlmostEqual(one.idle / one.total, idle, places=9, msg=f"{schedule}, {p}, {m}")
                    self.assertAlmostEqual(one.waits, idle, places=9)

    def test_without_a_network_strategies_divide_all_that_they_can(self):
        eighth = 8 * 3.0 / 8
        self.assertAlmostEqual(step("data", 8).total, eighth + 0.75)
        self.assertAlmostEqual(step("data, sharding optimizer", 8).total, eighth + 0.25 + 0.5 / 8)
        sizes = scaling_jobs.FULL
        share = scaling_model.parameters_share(
            scaling_model.mesh_of(STRATEGIES["tensor"], 8, sizes), 0)
        self.assertTrue(1 / 8 < share < 0.15, share)
        self.assertAlmostEqual(step("tensor", 8, sizes).total, eighth + 0.25 + 0.5 * share)

    def test_the_slowest_stage_sets_the_pace(self):
        mesh = scaling_model.mesh_of(STRATEGIES["pipeline, 1f1b"], 8, scaling_jobs.FULL)
        shares = scaling_model.stage_shares(mesh)
        self.assertAlmostEqual(sum(shares), 1)
        self.assertEqual([mesh_formulas.layers_of(mesh, stage) for stage in range(8)], [3, 2, 2, 2, 2, 2, 2, 1])
        one = step("pipeline, 1f1b", 8, scaling_jobs.FULL, TIMES._replace(update=0, rest=0))
        self.assertAlmostEqual(one.total, 7 * 3.0 * max(shares) + 3.0)

    def test_the_last_backward_hides_gradients_up_to_its_own_length(self):
        model = mesh_formulas.parameter_bytes(mesh_formulas.Mesh(1, 1, 1, sizes=EQUAL), 0)
        fast, slow = network(0, model / 1.5), network(0, model / 3.0)  # two ranks send the model once
        self.assertAlmostEqual(step("data", 2, net=fast).exposed, 0)
        self.assertAlmostEqual(step("data", 2, net=slow).exposed, 1.0, places=6)
        # Its reduce-scatter and its all-gather send a half each: 1.5 s, of which forward hides 1.
        self.assertAlmostEqual(step("data, sharding optimizer", 2, net=slow).exposed, 0.5, places=3)

    def test_sums_within_layers_are_exposed(self):
        net = network(0, 1e9)
        bytes_ = mesh_formulas.activation(scaling_model.mesh_of(STRATEGIES["tensor"], 2, EQUAL))
        self.assertAlmostEqual(step("tensor", 2, net=net).exposed, 8 * (4 * 16 + 2) * bytes_ / 1e9, places=9)
        self.assertAlmostEqual(step("tensor, sequenceParallel", 2, net=net).exposed,
                               8 * (10 * 16 + 4) * bytes_ / 2 / 1e9, places=9)

    def test_the_network_gives_back_what_was_measured(self):
        net = network(1e-5, 2e9)
        for name in NAMES:
            for size, seconds in net.measured[name].items():
                if size >= 1 << 20:
                    self.assertAlmostEqual(net.seconds(name, 2, size), seconds, places=9)
        self.assertAlmostEqual(net.seconds("all_reduce", 8, 1 << 20), 14 * 1e-5 + 14 / 8 * (1 << 20) / 2e9)
        self.assertEqual(net.seconds("all_reduce", 1, 1 << 20), 0)


class Jobs(unittest.TestCase):
    def test_jobs_have_the_fields_of_their_strategy(self):
        self.assertEqual(len(OPERATIONS), len(NAMES))
        fields = {name: scaling_jobs.fields_of(one, 4) for name, one in STRATEGIES.items()}
        self.assertEqual(fields["data, sharding parameters"], {"sharding": "parameters"})
        self.assertEqual(fields["tensor, sequenceParallel"], {"tensor": 4, "sequenceParallel": True})
        self.assertEqual(fields["pipeline, interleaved"],
                         {"pipeline": 4, "pipelineSchedule": "interleaved", "virtualStages": 2})
        self.assertTrue(all(scaling_jobs.fields_of(one, 1) == {} for one in STRATEGIES.values()))

    def test_jobs_with_more_processes_than_cores_are_not_timed(self):
        options = mesh_scaling.parse(["--cores", "4"])
        self.assertEqual((options.measured, options.crowded), ([2, 4], [8]))
        self.assertEqual([one.is_tied for one in options.alone], [True, False])
        options = mesh_scaling.parse(["--cores", "1", "--tiny", "--strategies", "tensor"])
        self.assertEqual((options.measured, options.crowded, len(options.alone)), ([], [2], 1))

    def test_waits_are_what_is_not_computed_in_the_timed_steps(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            records = [[1, "forward", "forward", 0, 0, 0, 0, 100], [2, "step", "update", -1, 0, 1, 100, 110],
                       [2, "forward", "forward", 0, 0, 1, 110, 150],
                       [2, "forward", "communication", 0, 0, 1, 150, 180],
                       [2, "backward", "backward", 0, 0, 1, 180, 200]]
            timeline = {"dropped": 0, "steps": [[1, 0, 100], [2, 100, 200]], "records": records}
            (folder / "step-00000002-rank-00000.json").write_text(json.dumps(timeline))
            self.assertAlmostEqual(scaling_jobs.waiting_share(folder, range(2, 3)), 0.4)
            (folder / "step-00000002-rank-00001.json").write_text(json.dumps(timeline | {"dropped": 1}))
            with self.assertRaisesRegex(local_job.JobFailed, "1 records were dropped"):
                scaling_jobs.waiting_share(folder, range(2, 3))

    def test_cpu_seconds_are_those_of_a_process(self):
        self.assertGreater(local_job.cpu_seconds("self"), 0)
        self.assertEqual(local_job.cpu_seconds(1 << 30), 0)


if __name__ == "__main__":
    unittest.main()
