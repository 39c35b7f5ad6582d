#!/usr/bin/env python3
"""Jobs come and go while parts of the cluster are killed; see tools/soak, which starts this."""
import argparse
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

import bounds
import cluster
import jobs
import processes
import victims

QUEUES = ("workqueue_depth", "lockstep_controller_requests_waiting")
QUIET_SECONDS = 300
ETERNAL = 2  # jobs that run from beginning to end, whose agents and ranks are spared


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=200, help="jobs in the cluster at a time")
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--real", metavar="FOLDER", type=pathlib.Path,
                        help="of tools/cluster, whose kube-apiserver and etcd to use")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--csv", type=pathlib.Path, default=pathlib.Path("soak.csv"))
    return parser.parse_args()


class Soak:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.seconds = arguments.minutes * 60
        # A job lives a tenth of the run at most, and five minutes.
        self.longest = min(300, self.seconds / 10)
        build = arguments.build.resolve()
        self.cluster = (
            cluster.Real(build, folder, arguments.machines, arguments.real.resolve())
            if arguments.real else cluster.Embedded(build, folder, arguments.machines))
        self.users = jobs.Users(self.cluster.server, random.Random(arguments.seed), folder,
                                arguments.jobs)
        self.series = bounds.Series(arguments.csv)
        self.faults, self.problems = {}, []
        self.began = time.monotonic()
        self.is_over = threading.Event()

    def elapsed(self):
        return time.monotonic() - self.began

    def run(self):
        for i in range(ETERNAL):
            self.users.create(f"{victims.ETERNAL}{i}", "eternal", 0,
                              {"nodes": 2, "command": jobs.eternal(self.folder)})
        self.began = time.monotonic()
        threads = [threading.Thread(target=self.guarded, args=(each,))
                   for each in (self.sample, self.cause_faults)]
        for thread in threads:
            thread.start()
        try:
            while self.elapsed() < self.seconds or self.was_too_quiet():
                self.users.look(self.longest)
                time.sleep(min(1, self.seconds / 100))
        finally:
            self.is_over.set()
            for thread in threads:
                thread.join()
        self.end_jobs()

    def was_too_quiet(self):
        """A short run goes on until jobs have come and gone, and something was killed."""
        if self.elapsed() > self.seconds + QUIET_SECONDS:
            self.problems.append("too few jobs ended, or nothing was killed")
            return False
        was_hit = self.faults.get("rank killed") and self.faults.get("agent killed")
        return not was_hit or self.users.created < 2 * self.arguments.jobs

    def guarded(self, function):
        try:
            function()
        except Exception as error:  # the main thread reports it
            self.problems.append(f"{function.__name__}: {error!r}")

    def sample(self):
        interval = min(5, self.seconds / 200)
        while not self.is_over.wait(interval):
            self.sample_once()

    def sample_once(self):
        now = self.elapsed()
        for what, pid in self.cluster.measured().items():
            self.series.add(now, what, pid, processes.usage(pid))
        agents = [pid for pid in self.programs("lockstep-agent") if self.is_eternal(pid)]
        for pid in agents:
            self.series.add(now, "eternal agents", pid, processes.usage(pid))
        metrics = self.cluster.controller.metrics()
        self.series.add(now, "queues", 0, {name: metrics[name] for name in QUEUES if name in metrics})
        self.series.add(now, "cluster", 0, {"jobs": len(self.users.jobs), "processes": len(
            processes.descendants(self.cluster.node_pid()))})

    def programs(self, name):
        return [pid for pid in processes.descendants(self.cluster.node_pid())
                if processes.name_of(pid) == name]

    def is_eternal(self, pid):
        return victims.job_of(processes.environment(pid)).startswith(victims.ETERNAL)

    def ranks(self):
        """Processes that agents started."""
        parents = processes.parents()
        agents = set(self.programs("lockstep-agent"))
        return [pid for pid, parent in parents.items() if parent in agents and pid not in agents]

    def cause_faults(self):
        chance = random.Random(self.arguments.seed + 1)
        pods = victims.Victims(chance)
        pause = min(4, self.seconds / 60)
        kinds = [("rank killed", lambda _: pods.kill_one(self.ranks()), 8),
                 ("agent killed", lambda _: pods.kill_one(self.programs("lockstep-agent")), 4)]
        rare = [("controller killed", lambda _: self.cluster.kill_controller(), 2)]
        rare += [(name, fault, 1) for name, fault in self.cluster.server_faults().items()]
        controller_at = -30.0
        while not self.is_over.wait(chance.uniform(0.2 * pause, 1.8 * pause)):
            # Growth is judged in the second half: controller and server live on there.
            allowed = kinds + (rare if self.elapsed() < self.seconds / 2 else [])
            name, fault, _ = chance.choices(allowed, [kind[2] for kind in allowed])[0]
            if name == "controller killed":
                # `lockstep up` gives up if it ends ten times without 20 healthy seconds in between.
                if self.elapsed() - controller_at < min(25, self.seconds / 10):
                    continue
                controller_at = self.elapsed()
            if fault(chance) is not False:
                self.faults[name] = self.faults.get(name, 0) + 1

    def end_jobs(self):
        """Lets all jobs end, deletes them, and looks for what they left."""
        self.users.creates = False
        self.is_settled("eternal jobs run", lambda: not self.not_running())
        (self.folder / "end").write_text("")
        for job in self.users.jobs.values():
            if job.kind == "eternal":
                job.state = "ending"

        def all_gone():
            self.users.look(self.longest)
            for job in list(self.users.jobs.values()):
                found = self.cluster.server.ask("GET", f"{cluster.JOBS}/{job.name}")[1]
                if job.state == "ending" and jobs.end_of(found):
                    if jobs.end_of(found)[0] != "Complete":
                        self.problems.append(f"{job.name} ended as {jobs.end_of(found)}")
                    self.users.delete(job)
            return not self.users.jobs

        self.is_settled("all jobs are gone", all_gone, jobs.LATE_SECONDS + 2 * self.longest, 0.2)
        for kind in ("pods", "secrets"):
            path = f"/api/v1/namespaces/default/{kind}"
            self.is_settled(f"no {kind} are left", lambda path=path: not [
                item for item in self.cluster.server.items(path)
                if item.get("type") != "kubernetes.io/service-account-token"], 180)
        self.is_settled("no process of a pod is left", lambda: not self.pod_processes())
        self.is_settled("no file of a pod is left", lambda: not list(
            self.cluster.pod_folder().glob("*")))
        self.is_settled("the queues are empty", lambda: self.queues() == [0, 0])
        self.sample_once()

    def not_running(self):
        states = {item["metadata"]["name"]: item.get("status", {}).get("state")
                  for item in self.cluster.server.items(cluster.JOBS)}
        return [i for i in range(ETERNAL) if states.get(f"{victims.ETERNAL}{i}") != "Running"]

    def queues(self):
        metrics = self.cluster.controller.metrics()
        return [metrics.get(name) for name in QUEUES]

    def pod_processes(self):
        return [pid for pid in processes.descendants(self.cluster.node_pid())
                if processes.name_of(pid) not in ("lockstep-controller", "")]

    def is_settled(self, what, condition, seconds=120, interval=0.05):
        try:
            cluster.wait_until(what, condition, seconds, interval)
        except TimeoutError:
            self.problems.append(f"not after {seconds:.0f} s: {what}")

    def report(self):
        rows = list(self.series.rows(self.seconds))
        problems = [*self.users.problems, *self.problems]
        problems += filter(None, (breach for what, measure, _, third, last in rows
                                  for breach in [bounds.breach(what, measure, third, last)]))
        depth = max((most for what, name, most, *_ in rows if name == QUEUES[0]), default=0)
        if depth > 2 * (self.arguments.jobs + ETERNAL):
            problems.append(f"the work queue held {depth:g} jobs")
        print(bounds.table(rows))
        print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())))
        print(f"jobs: {self.users.created} created, {sum(self.users.gone.values())} gone with "
              f"{ETERNAL} eternal ones: {self.users.gone}")
        for problem in problems:
            print("PROBLEM: " + problem)
        return 1 if problems else 0


def main():
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the cluster too
    print(f"seed {arguments.seed}, {arguments.jobs} jobs, {arguments.minutes:g} minutes, on "
          + ("a real API server" if arguments.real else "the embedded API server"), flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-soak-"))
    soak = Soak(arguments, folder)
    try:
        soak.run()
    finally:
        stopped = soak.cluster.stop()
        code = soak.report()
    if stopped != 0:
        print(f"PROBLEM: the cluster's end: {stopped}")
        code = 1
    if code == 0:
        shutil.rmtree(folder)
    else:
        print(f"logs are in {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
