#!/usr/bin/env python3
"""What a soak takes for a breach: lost jobs, wrong ends, late jobs, growth."""
import pathlib
import random
import tempfile
import time
import unittest

import bounds
import cluster
import jobs
import victims


class FakeServer:
    """Keeps jobs by name, as the part of the API that users need."""

    def __init__(self):
        self.objects = {}

    def ask(self, method, path, body=None):
        name = path.rsplit("/", 1)[1]
        if method == "POST":
            name = body["metadata"]["name"]
            self.objects[name] = {"metadata": {"name": name, "uid": "uid-" + name}, "spec": body["spec"]}
            return 201, self.objects[name]
        if method == "DELETE":
            self.objects.pop(name, None)
            return 200, {}
        return (200, self.objects[name]) if name in self.objects else (404, {})

    def items(self, path):
        assert path == cluster.JOBS
        return list(self.objects.values())

    def end(self, name, condition, reason):
        self.objects[name]["status"] = {
            "conditions": [{"type": condition, "status": "True", "reason": reason}]}


def users_with_a_job(kind):
    server = FakeServer()
    users = jobs.Users(server, random.Random(1), pathlib.Path("/nowhere"), 0)
    users.create("j", kind, 1, {"command": ["true"]})
    return server, users


class Victims(unittest.TestCase):
    def kills(self, names, times):
        """Returns how often the processes of each of these jobs were killed."""
        killed = []
        pods = victims.Victims(
            random.Random(1), lambda pid: f"HOME=/\0LOCKSTEP_JOB_NAME={names[pid]}\0",
            lambda pid: killed.append(names[pid]) or True)
        for _ in range(times):
            pods.kill_one(range(len(names)))
        return {name: killed.count(name) for name in names}

    def test_no_job_is_hit_without_end(self):
        most = victims.MOST_KILLS
        self.assertEqual(self.kills(["a", "b"], 100), {"a": most, "b": most})

    def test_eternal_jobs_are_spared(self):
        self.assertEqual(self.kills(["eternal-0", "a"], 2), {"eternal-0": 0, "a": 2})

    def test_a_process_that_is_gone_is_not_killed(self):
        self.assertEqual(self.kills([""], 5), {"": 0})


class Jobs(unittest.TestCase):
    def test_one_that_ends_as_its_kind_has_to_is_deleted_and_accounted_for(self):
        server, users = users_with_a_job("completes")
        server.end("j", "Complete", "WorkersCompleted")
        users.look(1)
        self.assertEqual(server.objects, {})
        users.look(1)
        self.assertEqual((users.problems, users.jobs, users.gone["completes"]), ([], {}, 1))

    def test_one_that_vanishes_is_lost(self):
        for kind in ("completes", "is deleted", "fails", "expires"):
            server, users = users_with_a_job(kind)
            server.objects.clear()
            users.look(1)
            self.assertEqual(len(users.problems), 0 if kind == "expires" else 1, kind)

    def test_one_that_was_replaced_is_lost(self):
        server, users = users_with_a_job("completes")
        server.objects["j"]["metadata"]["uid"] = "another"
        users.look(1)
        self.assertIn("is lost", users.problems[0])

    def test_a_wrong_end_is_a_problem(self):
        for kind, condition, reason in (("completes", "Failed", "TooManyRestarts"),
                                        ("fails", "Complete", "WorkersCompleted"),
                                        ("has a rule", "Failed", "TooManyRestarts"),
                                        ("expires", "Failed", "NeverStarted")):
            server, users = users_with_a_job(kind)
            server.end("j", condition, reason)
            users.look(1)
            self.assertIn("ended as", users.problems[0])

    def test_one_that_does_not_end_is_late_once(self):
        _, users = users_with_a_job("completes")
        users.jobs["j"].created = time.monotonic() - jobs.LATE_SECONDS - 10
        users.look(1)
        users.look(1)
        self.assertEqual(len(users.problems), 1)
        self.assertIn("has not ended", users.problems[0])


class Growth(unittest.TestCase):
    def grown(self, measure, base, slope, seconds=bounds.SECONDS_MIN):
        with tempfile.NamedTemporaryFile() as file:
            series = bounds.Series(file.name)
            for at in range(seconds + 1):
                series.add(at, "server", 7, {measure: base + slope * at})
            (what, measure, most, third, last), = series.rows(seconds)
            series.file.close()
        self.assertEqual(most, base + slope * seconds)
        return bounds.breach(what, measure, third, last)

    def test_what_stays_the_same_is_bounded(self):
        for measure in bounds.SLACK:
            self.assertEqual(self.grown(measure, 100, 0), "")

    def test_a_leak_is_found(self):
        self.assertIn("handles grows", self.grown("handles", 100, 1))
        self.assertIn("threads grows", self.grown("threads", 8, 0.1))
        self.assertIn("memory KiB grows", self.grown("memory KiB", 100_000, 400))

    def test_a_run_that_is_too_short_is_not_judged(self):
        self.assertEqual(self.grown("handles", 100, 100, seconds=60), "")


if __name__ == "__main__":
    unittest.main()
