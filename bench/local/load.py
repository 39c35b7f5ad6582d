#!/usr/bin/env python3
"""Runs many small jobs against `lockstep up`: do all complete, how fast, and in how much memory?

Starts `lockstep up`, watches jobs and pods through two watches each, creates the jobs as fast as the
server accepts them, waits until all are Complete and deletes their namespace. Measures the memory
of the server and the controller before, at the peak and after. Prints one line of JSON. Exits with
1 if one of these promises is broken:
  - every job completes, and every watch sees every object that was created;
  - both watches of a kind see the same events in the same order, versions only grow, and each
    object's events are ADDED, MODIFIED..., DELETED;
  - a watcher that does not read is cut off;
  - memory returns to within 10 % of its initial size.
"""
import argparse
import base64
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

JOBS = "/apis/lockstep.dev/v1alpha1/namespaces/load/trainingjobs"
PODS = "/api/v1/namespaces/load/pods"
TOLERANCE = 0.10
# Collections that are empty after a load, in all namespaces.
COLLECTIONS = ("/apis/lockstep.dev/v1alpha1/trainingjobs", "/api/v1/pods", "/api/v1/secrets",
               "/api/v1/configmaps")


class Server:
    """The API server of a kubeconfig that `lockstep up` wrote."""

    def __init__(self, kubeconfig):
        text = pathlib.Path(kubeconfig).read_text()
        self.host, self.port = re.search(r"server: https://([\d.]+):(\d+)", text).groups()
        self.token = re.search(r"token: (\S+)", text).group(1)
        authority = base64.b64decode(
            re.search(r"certificate-authority-data: (\S+)", text).group(1))
        self.tls = ssl.create_default_context(cadata=authority.decode())

    def connection(self):
        return http.client.HTTPSConnection(self.host, int(self.port), context=self.tls, timeout=600)

    def headers(self):
        return {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}

    def ask(self, connection, method, path, body=None):
        connection.request(method, path, None if body is None else json.dumps(body),
                           self.headers())
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None


class Watcher(threading.Thread):
    """Records all events of a collection in order of arrival, without the objects."""

    def __init__(self, server, path, on_object=None):
        super().__init__(daemon=True)
        self.server, self.path, self.on_object = server, path, on_object
        self.events = []  # (type, name, uid, version)
        self.error = None
        connection = server.connection()
        status, listed = server.ask(connection, "GET", path)
        assert status == 200, listed
        self.version = listed["metadata"]["resourceVersion"]
        self.connection = server.connection()
        self.connection.request(
            "GET", f"{path}?watch=true&timeoutSeconds=3000&resourceVersion={self.version}",
            headers=server.headers())
        self.response = self.connection.getresponse()

    def run(self):
        try:
            for line in iter(self.response.readline, b""):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.error = event["object"]
                    return
                metadata = event["object"]["metadata"]
                self.events.append((event["type"], metadata["name"], metadata["uid"],
                                    int(metadata["resourceVersion"])))
                if self.on_object is not None:
                    self.on_object(event)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = repr(error)

    def problems(self, name):
        if self.error:
            yield f"{name}: ended with {self.error}"
        last = int(self.version)
        state = {}
        for kind, _, uid, version in self.events:
            if version <= last:
                yield f"{name}: version {version} came after {last}"
            last = version
            before = state.get(uid)
            right = kind == "ADDED" if before is None else before != "DELETED" and kind != "ADDED"
            if not right:
                yield f"{name}: {kind} of {uid} after {before}"
            state[uid] = kind


class Completions:
    """Which jobs are Complete or Failed, as seen by a watch."""

    def __init__(self):
        self.changed = threading.Condition()
        self.complete, self.failed = {}, {}

    def __call__(self, event):
        status = event["object"].get("status", {})
        for condition in status.get("conditions", []):
            if condition["status"] != "True" or condition["type"] not in ("Complete", "Failed"):
                continue
            ended = self.complete if condition["type"] == "Complete" else self.failed
            with self.changed:
                ended.setdefault(event["object"]["metadata"]["name"], time.monotonic())
                self.changed.notify_all()

    def wait(self, count, seconds):
        with self.changed:
            self.changed.wait_for(lambda: len(self.complete) + len(self.failed) >= count, seconds)


def slow_watcher(server):
    """Opens a watch with a small receive buffer, and never reads from it."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect((server.host, int(server.port)))
    secured = server.tls.wrap_socket(raw, server_hostname=server.host)
    secured.sendall((f"GET {PODS}?watch=true&timeoutSeconds=3000 HTTP/1.1\r\nHost: x\r\n"
                     f"Authorization: Bearer {server.token}\r\n\r\n").encode())
    return secured


def is_established(server_port, client_port):
    """Returns whether the server's side of it is still open (state 01 in /proc/net/tcp)."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if (int(local.split(":")[1], 16), int(remote.split(":")[1], 16)) == (server_port, client_port):
            return state == "01"
    return False


def was_cut_off(secured, seconds):
    """Waits for the server to close, without reading: a watcher that reads is not slow."""
    client_port, server_port = secured.getsockname()[1], secured.getpeername()[1]
    return wait_until(lambda: not is_established(server_port, client_port), seconds)


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def child_named(parent, name):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().startswith(name[:15]):
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                    return int(entry.name)
        except OSError:
            continue
    return None


def job(name):
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name}, "spec": {"nodes": 2, "command": ["true"]}}


def create_all(server, names, connections):
    """POSTs the jobs over parallel connections. Returns the answers that were not 201."""
    refused, lock, left = [], threading.Lock(), list(reversed(names))

    def work():
        connection = server.connection()
        while True:
            with lock:
                if not left:
                    return
                name = left.pop()
            status, answer = server.ask(connection, "POST", JOBS, job(name))
            if status != 201:
                with lock:
                    refused.append(f"{name}: {status} {answer}")

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def left_over(server, connection):
    """Yields what the server still holds although the namespace of the load is gone."""
    for path in COLLECTIONS:
        items = server.ask(connection, "GET", path)[1]["items"]
        if items:
            yield f"{len(items)} objects are left in {path}"


def settle(server, connection):
    """Deletes the namespace with its objects. Waits until it is gone; returns False after 120 s."""
    server.ask(connection, "DELETE", "/api/v1/namespaces/load")
    return wait_until(
        lambda: server.ask(connection, "GET", "/api/v1/namespaces/load")[0] == 404, 120)


class Memory:
    """Resident bytes of the server and the controller."""

    def __init__(self, up, controller):
        self.pids = {"server": up, "controller": controller}
        self.start, self.peak = None, {name: 0 for name in self.pids}
        self.descriptors_start = None
        self.stopped = threading.Event()

    def now(self):
        return {name: resident_bytes(pid) for name, pid in self.pids.items()}

    def mark_start(self):
        self.start = self.now()
        self.descriptors_start = {name: descriptors(pid) for name, pid in self.pids.items()}

    def sample(self):
        while not self.stopped.wait(0.2):
            for name, bytes_now in self.now().items():
                self.peak[name] = max(self.peak[name], bytes_now)

    def is_back(self):
        return all(bytes_now <= self.start[name] * (1 + TOLERANCE)
                   for name, bytes_now in self.now().items())


def run_round(server, connection, arguments, names):
    """Runs one load; returns (figures, problems)."""
    status, answer = server.ask(connection, "POST", "/api/v1/namespaces",
                                {"metadata": {"name": "load"}})
    assert status == 201, answer
    completions = Completions()
    watchers = {"jobs": Watcher(server, JOBS, completions), "jobs, second": Watcher(server, JOBS),
                "pods": Watcher(server, PODS), "pods, second": Watcher(server, PODS)}
    for watcher in watchers.values():
        watcher.start()
    slow = slow_watcher(server)
    began = time.monotonic()
    problems = create_all(server, names, arguments.connections)
    created = time.monotonic()
    completions.wait(len(names), arguments.seconds)
    ended = time.monotonic()
    if len(completions.complete) != len(names):
        problems.append(f"{len(completions.complete)} of {len(names)} jobs Complete, "
                        f"{len(completions.failed)} Failed: {sorted(completions.failed)[:5]}")
    height = resident_bytes(arguments.up_pid)
    objects = sum(len(server.ask(connection, "GET", path)[1]["items"]) for path in
                  (JOBS, PODS, "/api/v1/namespaces/load/secrets", "/api/v1/namespaces/load/events"))
    if not settle(server, connection):
        problems.append("the namespace was not deleted in 120 s")
    problems += left_over(server, connection)
    count = {name: len([e for e in w.events if e[0] == "ADDED"]) for name, w in watchers.items()}
    for name, watcher in watchers.items():
        expected = len(names) * (2 if name.startswith("pods") else 1)
        wait_until(lambda: len([e for e in watcher.events if e[0] == "DELETED"]) >= expected, 30)
        if count[name] != expected:
            problems.append(f"{name}: {count[name]} ADDED, expected {expected}")
        problems += watcher.problems(name)
    for kind in ("jobs", "pods"):
        if watchers[kind].events != watchers[kind + ", second"].events:
            problems.append(f"{kind}: two watches saw different events")
    if arguments.slow_watcher and not was_cut_off(slow, 60):
        problems.append("a watcher that does not read was not cut off")
    slow.close()
    for watcher in watchers.values():
        watcher.connection.sock and watcher.connection.sock.close()
    figures = {"jobs": len(names), "objects": objects, "createSeconds": round(created - began, 3),
               "seconds": round(ended - began, 3),
               "jobsPerSecond": round(len(completions.complete) / (ended - began), 2),
               "events": sum(len(w.events) for w in watchers.values()), "heightBytes": height}
    return figures, problems


def measure(arguments, folder):
    kubeconfig = folder / "kubeconfig"
    up = subprocess.Popen(
        [arguments.lockstep, "up", "--folder", str(folder / "up"), "--kubeconfig", str(kubeconfig),
         "--machines", str(arguments.machines),
         "--history-seconds", str(arguments.history_seconds)],
        stdin=subprocess.DEVNULL, stderr=open(folder / "up.log", "wb"))
    try:
        if not wait_until(kubeconfig.exists, 60):
            return {}, ["lockstep up did not start: " + (folder / "up.log").read_text()]
        server = Server(kubeconfig)
        connection = server.connection()
        arguments.up_pid = up.pid
        # A forked child has its parent's name until it executes the program.
        if not wait_until(lambda: child_named(up.pid, "lockstep-controller"), 60):
            return {}, ["lockstep-controller does not run"]
        memory = Memory(up.pid, child_named(up.pid, "lockstep-controller"))
        # The first few jobs allocate what is allocated only once: threads, pools, caches.
        _, problems = run_round(server, connection,
                                argparse.Namespace(**{**vars(arguments), "slow_watcher": False}),
                                [f"warm-{i:03}" for i in range(arguments.warm_up)])
        if arguments.memory:
            time.sleep(arguments.history_seconds + arguments.history_margin)
        memory.mark_start()
        threading.Thread(target=memory.sample, daemon=True).start()
        figures, more = run_round(server, connection, arguments,
                                  [f"job-{i:04}" for i in range(arguments.jobs)])
        problems += more
        if arguments.memory and not wait_until(memory.is_back, 60):
            problems.append(f"memory: {memory.start} at the start, {memory.now()} at the end")
        figures["residentBytes"] = {"start": memory.start, "peak": memory.peak,
                                    "end": memory.now()}
        if figures.get("objects"):
            grown = figures.pop("heightBytes") - memory.start["server"]
            figures["bytesPerObject"] = grown // figures["objects"]
        figures["descriptors"] = {
            "start": memory.descriptors_start,
            "end": {name: descriptors(pid) for name, pid in memory.pids.items()}}
        memory.stopped.set()
        return figures, problems
    finally:
        up.terminate()
        up.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lockstep", default="build/bin/lockstep")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--warm-up", type=int, default=50)
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=900, help="a guard against hangs")
    parser.add_argument("--history-seconds", type=int, default=15,
                        help="what a watch may fall behind before it is told 410")
    parser.add_argument("--history-margin", type=float, default=7)
    parser.add_argument("--no-memory", dest="memory", action="store_false",
                        help="does not wait until memory is back")
    parser.set_defaults(slow_watcher=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-load-") as name:
        figures, problems = measure(arguments, pathlib.Path(name))
    print(json.dumps(figures))
    for problem in problems[:20]:
        print("wrong: " + problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
