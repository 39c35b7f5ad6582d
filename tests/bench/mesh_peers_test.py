#!/usr/bin/env python3
"""The comparison of meshes with PyTorch: its rows, stages, losses, and peers that fail. Runs no job."""
import argparse
import collections
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench/train"))
import mesh_peers  # noqa: E402
import peer_turns  # noqa: E402
import report  # noqa: E402
import torch_mesh  # noqa: E402

RANKS = (2, 4)
PARTS = {"communication": 0.25, "total": 0.5}


def options(*arguments):
    return mesh_peers.parse(["--rounds", "2", "--steps", "3", "--warmup", "1", "--tiny", *arguments])


class Rows(unittest.TestCase):
    def test_every_row_has_a_peer_that_both_programs_know(self):
        known = {"tensor", "sequence", *torch_mesh.SCHEDULES}
        self.assertEqual({row.peer for row in mesh_peers.ROWS.values()}, known)
        self.assertEqual(set(mesh_peers.PEERS), known)
        for peer, (name, _, _) in torch_mesh.SCHEDULES.items():
            self.assertEqual(mesh_peers.PEERS[peer], name)

    def test_every_row_uses_all_ranks_for_one_axis(self):
        for row in mesh_peers.ROWS.values():
            for ranks in RANKS:
                fields = row.fields(ranks)
                self.assertEqual([fields.get("tensor"), fields.get("pipeline")].count(ranks), 1, row.name)
                for nodes, per_node in mesh_peers.ways(row, ranks).values():
                    self.assertEqual(nodes * per_node, ranks)
                    self.assertEqual(per_node % fields.get("tensor", 1), 0, "tensor-parallel ranks share a pod")

    def test_every_mesh_divides_the_model_and_the_batch(self):
        for model in (mesh_peers.MODEL, mesh_peers.TINY):
            for ranks in RANKS:
                self.assertEqual([model[name] % ranks for name in ("heads", "context", "vocabulary")], [0, 0, 0])
                self.assertEqual(model["layers"] % (2 * ranks), 0, "two stages per rank")
                batch = mesh_peers.batch_of(options("--micro", "3"), ranks)
                self.assertEqual(batch, {"global": 6 * ranks, "micro": 3})

    def test_unknown_rows_and_ranks_are_refused(self):
        self.assertEqual([row.name for row in options("--rows", "1f1b; gpipe").rows], ["1f1b", "gpipe"])
        for wrong in (["--rows", "1f2b"], ["--ranks", "3"], ["--steps", "0"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                options(*wrong)


class Stages(unittest.TestCase):
    def test_every_stage_is_on_one_rank_and_every_layer_in_one_stage(self):
        options = argparse.Namespace(**mesh_peers.MODEL)
        for _, per_rank, order in torch_mesh.SCHEDULES.values():
            for ranks in RANKS:
                stages = [stage for rank in range(ranks)
                          for stage in torch_mesh.local_stages(rank, ranks, per_rank, order)]
                self.assertEqual(sorted(stages), list(range(ranks * per_rank)))
                layers = [layer for stage in sorted(stages) for layer in torch_mesh.layers_of(stage, len(stages), options)]
                self.assertEqual(layers, list(range(8)))

    def test_the_stage_with_the_head_has_fewer_layers(self):
        gpt2 = argparse.Namespace(layers=12, width=768, context=1024, vocabulary=50304)
        self.assertEqual([len(torch_mesh.layers_of(stage, 4, gpt2)) for stage in range(4)], [4, 4, 3, 1])

    def test_the_ends_of_a_v_are_on_the_first_rank(self):
        self.assertEqual([torch_mesh.local_stages(rank, 4, 2, "v") for rank in range(4)],
                         [[0, 7], [1, 6], [2, 5], [3, 4]])
        self.assertEqual(torch_mesh.local_stages(1, 4, 2, "loop"), [1, 5])


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.errors = io.StringIO()

    def work(self, some):
        return peer_turns.Work(some, self.folder, mesh_peers.TINY, mesh_peers.batch_of(some, 2))

    def test_tokens_are_one_step_and_the_target_of_its_last_token(self):
        work = self.work(options())
        self.assertEqual(work.tokens_per_step(), 8 * 32)
        self.assertEqual(work.tokens.stat().st_size, 2 * (8 * 32 + 1))

    def test_losses_must_be_those_of_the_first_turn(self):
        work = self.work(options())
        work.check_losses("first", [6.0, 5.0, 4.0])  # of which the warm-up and one step are compared
        work.check_losses("near", [6.0003, 5.0, 1.0])
        with self.assertRaisesRegex(peer_turns.Failed, "far: losses differ by 2.0e-04, expected at most 1e-04"):
            work.check_losses("far", [6.0, 5.001])
        with self.assertRaisesRegex(peer_turns.Failed, "nan"):
            work.check_losses("nan", [6.0, float("nan")])
        with self.assertRaisesRegex(peer_turns.Failed, "short: 1 losses, expected 2"):
            work.check_losses("short", [6.0])

    def one_row(self, name, python):
        """Returns the table, the notes and the failures of a row whose PyTorch is another program."""
        program = self.folder / "python"
        program.write_text(f"#!/bin/sh\n{python}\n")
        program.chmod(0o755)
        work = self.work(options("--python", str(program)))
        table, notes = report.Report("a table"), []
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(self.errors), \
                mock.patch.object(peer_turns, "run_ours", return_value=(300.0, PARTS)):
            failures = mesh_peers.one_row(work, 2, mesh_peers.ROWS[name], collections.defaultdict(list), table, notes)
        return table.lines, notes, failures

    def test_a_row_has_the_ratio_of_each_turn(self):
        said = '{"tokensPerSecond": 200, "losses": [6, 5, 4, 3], "peer": "PyTorch 9"}'
        lines, notes, failures = self.one_row("1f1b", f"echo '{said}'")
        self.assertEqual(failures, [])
        self.assertEqual(len(lines), 2)
        self.assertIn("| 2 pods | 300 (300 to 300) | Schedule1F1B: 200 (200 to 200) | **1.50** (1.50 to 1.50) |",
                      lines[1])
        self.assertEqual(notes, ["PyTorch 9, Schedule1F1B, 2 ranks, its fastest settings: optimizer fused."])

    def test_a_schedule_that_pytorch_cannot_run_is_a_row_with_its_error(self):
        lines, notes, failures = self.one_row("zerobubble, zero-bubble V", "echo 'ValueError: no such stage' >&2; exit 1")
        self.assertEqual(len(failures), 1)
        self.assertIn("| one pod | 300 (300 to 300) | ScheduleZBVZeroBubble: cannot run | - |", lines[0])
        self.assertEqual(notes,
                         ["PyTorch cannot run ScheduleZBVZeroBubble with 2 ranks: ValueError: no such stage"])

    def test_what_pytorch_splits_is_not_compiled(self):
        said = '{"tokensPerSecond": 200, "losses": [6, 5, 4, 3], "peer": "PyTorch 9"}'
        asked = self.folder / "asked"
        for name, times in (("1f1b", 1), ("zerobubble, zero-bubble V", 0)):
            asked.write_text("")
            self.one_row(name, f"echo \"$@\" >> {asked}; echo '{said}'")
            self.assertEqual(asked.read_text().count("--compile layers"), times, name)


if __name__ == "__main__":
    unittest.main()
