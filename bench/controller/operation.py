"""Latencies and memory with many jobs, takeover from a dead leader, and forming of ranks."""
import base64
import http.client
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import threading
import time

from cluster import quantile, wait_until
from creation import spread
from played import AGENT_PORT, Pods, running_status
from programs import MASTER, create_jobs, lockstep, requests, training_job

RECONCILE = "controller_runtime_reconcile_time_seconds"
QUEUE = "workqueue_queue_duration_seconds"
LIMITER = "rest_client_rate_limiter_duration_seconds"


def milliseconds(before, after, histogram):
    values = [quantile(before, after, histogram, share) * 1000 for share in (0.5, 0.99)]
    return "none" if math.isnan(values[0]) else " and ".join(f"{value:.2f}" for value in values)


def observed(what, before, after, program, seconds, cpu):
    own = requests(before, after)
    count = after.sum(RECONCILE + "_count") - before.sum(RECONCILE + "_count")
    resident, most = program.memory()
    print(f"| {what} | {seconds:.0f} | {count:.0f} | {milliseconds(before, after, RECONCILE)} | "
          f"{milliseconds(before, after, QUEUE)} | {milliseconds(before, after, LIMITER)} | "
          f"{sum(own.values()) / seconds:.1f} | {cpu / seconds:.0%} | "
          f"{resident / 1e6:.0f} ({most / 1e6:.0f}) |", flush=True)


class Phase:
    """A row of the table, measured from construction to end()."""

    def __init__(self, what, program):
        self.what, self.program = what, program
        self.began, self.cpu, self.before = time.monotonic(), program.cpu_seconds(), program.metrics()

    def end(self):
        observed(self.what, self.before, self.program.metrics(), self.program,
                 time.monotonic() - self.began, self.program.cpu_seconds() - self.cpu)


class Chatter(threading.Thread):
    """Makes each agent report progress once per `period` seconds, spread evenly."""

    def __init__(self, agents, period):
        super().__init__(daemon=True)
        self.agents, self.period, self.stopped = agents, period, threading.Event()
        self.start()

    def run(self):
        step = 0
        while not self.stopped.is_set():
            step += 1
            everyone = list(self.agents.by_ip.values())
            begun = time.monotonic()
            for number, agent in enumerate(everyone):
                if agent.state["phase"] == "Running":
                    agent.progress(step)
                late = begun + self.period * number / len(everyone) - time.monotonic()
                if late > 0.01 and self.stopped.wait(late):
                    return


def churn(server, namespace, seconds, rate, agents):
    """Creates `rate` jobs of two pods per second; each trains for a second and completes.

    Returns their number.
    """
    began, number = time.monotonic(), 0
    pods = Pods(server, namespace, agents, on_round=lambda agent: agents.loop.call_later(1, agent.complete))
    path = training_job("any", 1)[0].format(namespace)
    while time.monotonic() < began + seconds:
        body = training_job(f"new{number:05}", 2)[1]
        server.ask("POST", path, body)
        number += 1
        time.sleep(max(0, began + number / rate - time.monotonic()))
    wait_until("the end of the new jobs", lambda: pods.patched["Succeeded"] == 2 * number)
    pods.close()
    return number


def is_settled(program, jobs):
    metrics = program.metrics()
    states = {state: int(count) for (state,), count in
              metrics.grouped("lockstep_trainingjobs", "state").items()}
    is_idle = metrics.sum("workqueue_depth") + metrics.sum("controller_runtime_active_workers") == 0
    return states.get("Running", 0) == jobs and is_idle


def scale(server, arguments, folder, agents):
    jobs, pods, qps = arguments.jobs, arguments.pods, arguments.rate
    print(f"\n### {jobs} jobs of {pods} pods\n\nAll Running, agents played. p50 and p99, ms.\n\n"
          "| what | seconds | reconciles | reconcile | in the queue | a request's wait for the rate limit | "
          "requests/s | of a core | resident (at the most), MB |\n|---|---|---|---|---|---|---|---|---|")
    namespace, second = f"scale-{time.monotonic_ns()}", f"churn-{time.monotonic_ns()}"
    server.make_namespace(namespace)
    server.make_namespace(second)
    played = Pods(server, namespace, agents)
    program = lockstep(server, arguments, folder, qps)
    phase = Phase(f"all created at once, QPS {qps}", program)
    create_jobs(server, namespace, training_job, jobs, pods)
    wait_until("all jobs Running", lambda: is_settled(program, jobs), 600, 1)
    phase.end()
    program.stop()
    began = time.monotonic()
    program = lockstep(server, arguments, folder, 50, 100)
    phase = Phase("controller started anew, QPS 50, burst 100", program)
    phase.began = began
    wait_until("all agents", lambda: program.metrics().sum(
        "lockstep_controller_agents") == jobs * pods and is_settled(program, jobs), 600, 0.5)
    phase.end()
    time.sleep(5)
    phase = Phase("nothing happens", program)
    time.sleep(arguments.seconds)
    phase.end()
    chatter = Chatter(agents, 10)
    time.sleep(15)
    phase = Phase("each agent reports progress once in 10 s", program)
    time.sleep(arguments.seconds)
    phase.end()
    phase = Phase("the same, and 2 new jobs of 2 pods a second", program)
    churn(server, second, arguments.seconds, 2, agents)
    phase.end()
    chatter.stopped.set()
    played.close()
    program.stop()
    server.remove_namespace(second)
    server.remove_namespace(namespace)


def leads(program):
    text = program.get("/metrics")
    return text is not None and f'{MASTER}{{name="lockstep-controller"}} 1' in text


def take_over_once(server, arguments, folder):
    namespace = f"leader-{time.monotonic_ns()}"
    server.make_namespace(namespace)
    server.text("DELETE", "/apis/coordination.k8s.io/v1/namespaces/default/leases/lockstep-controller")
    replicas = [lockstep(server, arguments, folder, 20, 20, elects=True) for _ in range(2)]
    leader = wait_until("a leader", lambda: next(filter(leads, replicas), None))
    standby = next(replica for replica in replicas if replica is not leader)
    seen = Pods(server, namespace, runs=False)
    path, body = training_job("j", arguments.leader_pods)
    server.ask("POST", path.format(namespace), body)
    wait_until("half of the pods", lambda: len(seen.added) >= arguments.leader_pods // 2)
    killed = time.monotonic()
    leader.kill()
    at_kill = len(seen.added)

    def next_write():
        """Returns when the first pod appeared that the dead leader can't have requested."""
        return next((at for at, _ in seen.added if at > killed + 2), None)

    wait_until("the next pod", next_write, 60)
    reconciled = next_write() - killed
    wait_until("all pods", lambda: len(seen.added) >= arguments.leader_pods, 120)
    time.sleep(2)
    names = [name for _, name in seen.added]
    indices = {re.fullmatch(r"j-worker-(\d+)-1", name).group(1) for name in names}
    twins, deleted = len(names) - len(indices), len(seen.deleted)
    seen.close()
    standby.stop()
    server.remove_namespace(namespace)
    return reconciled, at_kill, twins, deleted


def takeover(server, arguments, folder):
    print("\n### The leader is killed (SIGKILL) halfway through a job's pods\n\n"
          "| turn | pods there at the kill | kill to the next pod, s | pods made twice | pods deleted |\n"
          "|---|---|---|---|---|")
    seconds = []
    for turn in range(arguments.kills):
        reconciled, at_kill, twins, deleted = take_over_once(server, arguments, folder)
        seconds.append(reconciled)
        print(f"| {turn + 1} | {at_kill} of {arguments.leader_pods} | {reconciled:.2f} | {twins} | "
              f"{deleted} |", flush=True)
    print(f"\nMedian {spread(seconds, '{:.2f}')} s.")


class RealAgents:
    """Runs lockstep-agent as a process for each pod. Its caller marks the pods as Running."""

    def __init__(self, server, arguments, folder, namespace, count):
        self.server, self.arguments, self.namespace = server, arguments, namespace
        self.folder, self.processes, self.count = pathlib.Path(folder), {}, count
        self.lock = threading.Lock()
        self.pods = Pods(server, namespace, runs=False, threads=8)
        self.token = None

    def start(self, name, number):
        pod = self.pods.by_name[name]
        if self.token is None:
            name = next(volume["secret"]["secretName"] for volume in pod["spec"]["volumes"]
                        if volume["name"] == "token")
            secret = self.server.ask("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
            self.token = base64.b64decode(secret["data"]["token"]).decode()
        root = self.folder / name
        (root / "work").mkdir(parents=True)
        (root / "token").write_text(self.token)
        ip = self.pods.ips[name] = f"127.200.{number // 250}.{1 + number % 250}"
        variables = {v["name"]: v["value"] for v in pod["spec"]["containers"][0]["env"] if "value" in v}
        self.processes[name] = subprocess.Popen(
            [f"{self.arguments.build}/bin/lockstep-agent", "--work-dir", str(root / "work"),
             "--token-file", str(root / "token"), "--termination-log", str(root / "end")],
            env={**os.environ, **variables, "POD_IP": ip}, stdin=subprocess.DEVNULL,
            stdout=open(root / "log", "wb"), stderr=subprocess.STDOUT)

    def state(self, name, since, connection=None):
        """Returns the agent's state; None if it does not answer.

        Waits up to 30 s for one that is newer than `since`.
        """
        connection = connection or http.client.HTTPConnection(self.pods.ips[name], AGENT_PORT, timeout=40)
        try:
            connection.request("GET", f"/v1/state?since={since}&timeoutSeconds=30",
                               headers={"Authorization": "Bearer " + self.token})
            return json.loads(connection.getresponse().read())
        except OSError:
            return None

    def follow(self, name, is_formed, times):
        since = 0
        while name not in times:
            state = self.state(name, since)
            if state is None:
                return
            since = state.get("sequence", 0)
            workers = state.get("workers")
            if workers and all(is_formed(worker) for worker in workers):
                times[name] = time.monotonic()

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        self.pods.close()


TEXT = "In the beginning was a small file that a small model learns by heart. " * 200


def tiny_training(folder):
    """Returns a job of the built-in loop that starts training immediately and never finishes."""
    file = pathlib.Path(folder) / "text.txt"
    file.write_text(TEXT)
    return {"model": {"layers": 1, "width": 16, "heads": 1, "context": 16},
            "data": {"path": str(file), "tokenizer": "bytes"}, "steps": 1000000, "batch": {"global": 8}}


def form_once(server, arguments, folder, kind, count):
    namespace = f"form-{time.monotonic_ns()}"
    server.make_namespace(namespace)
    program = lockstep(server, arguments, folder, 50, 100)
    real = RealAgents(server, arguments, f"{folder}/{namespace}", namespace, count)
    try:
        path, body = training_job("j", count)
        del body["spec"]["command"]
        body["spec"] |= {"command": ["sleep", "1000"]} if kind == "command" else \
            {"train": tiny_training(folder)}
        server.ask("POST", path.format(namespace), body)
        wait_until("pods", lambda: len(real.pods.by_name) == count)
        names = sorted(real.pods.by_name)
        for number, name in enumerate(names):
            real.start(name, number)
        for name in names:
            wait_until("an agent", lambda: real.state(name, 0), 30)
        for name in names[:-1]:
            real.pods.patch(name, running_status(real.pods.ips[name]))
        time.sleep(1)
        times, passed = {}, ("Loading", "Broadcasting", "Training", "Saving", "Validating", "Finishing")
        threads = [threading.Thread(target=real.follow, daemon=True, args=(
            name, lambda worker: worker["running"] and worker["phase"] in passed, times)) for name in names]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        real.pods.patch(names[-1], running_status(real.pods.ips[names[-1]]))
        wait_until("all ranks", lambda: len(times) == count, 60)
        return max(times.values()) - began
    finally:
        real.stop()
        program.stop()
        server.remove_namespace(namespace)


def forming(server, arguments, folder):
    print("\n### From the last pod's Running to all ranks formed\n\nAgents and ranks are real processes.\n\n"
          "| pods | ranks | turns | seconds, median (spread) |\n|---|---|---|---|")
    kinds = (("command", 2), ("command", 8), ("command", 32), ("train", 2), ("train", 4), ("train", 8))
    seconds = {}
    for _ in range(arguments.forms):
        for kind, count in kinds:
            seconds.setdefault((kind, count), []).append(
                form_once(server, arguments, folder, kind, count))
    for (kind, count), values in seconds.items():
        what = "a user's command: started with the world's variables" if kind == "command" else \
            "built-in loop: connected to each other"
        print(f"| {count} | {what} | {len(values)} | {spread(values, '{:.3f}')} |", flush=True)
    print(f"\nMedian of all: {statistics.median(sum(seconds.values(), [])):.3f} s.")
