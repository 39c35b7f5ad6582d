"""The clusters that a soak runs on: the embedded API server, or a real one with etcd."""
import base64
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import processes

JOBS = "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AWAY_SECONDS = 300  # a server that is killed and started again answers by then


def wait_until(what, condition, seconds=AWAY_SECONDS, interval=0.05):
    """A guard against hangs, not a promise about speed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(interval)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Talks to the API server of a kubeconfig. Repeats requests while the server is away."""

    def __init__(self, kubeconfig):
        text = pathlib.Path(kubeconfig).read_text()
        self.host, self.port = re.search(r"server: https://([\d.]+):(\d+)", text).groups()
        self.token = re.search(r"token: (\S+)", text).group(1)
        authority = re.search(r"certificate-authority-data: (\S+)", text).group(1)
        self.tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        self.local = threading.local()

    def once(self, method, path, body=None):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(
                self.host, int(self.port), context=self.tls, timeout=60)
        try:
            self.local.connection.request(
                method, path, None if body is None else json.dumps(body),
                {"Authorization": "Bearer " + self.token, "Content-Type": kind})
            response = self.local.connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith(b"{") else {}
        except (OSError, http.client.HTTPException, ValueError):
            self.local.connection.close()
            del self.local.connection
            return 0, {}

    def ask(self, method, path, body=None):
        """Returns code and answer. No reply and 5xx, 429 are tried again: a POST may thus get 409."""
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            code, answer = self.once(method, path, body)
            if 0 < code < 500 and code != 429:
                return code, answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} {path}: {code} {answer} for {AWAY_SECONDS} s")
            time.sleep(0.1)

    def items(self, path):
        code, answer = self.ask("GET", path)
        if code != 200:
            raise RuntimeError(f"GET {path}: {code} {answer}")
        return answer["items"]


class Controller:
    """Where the running controller serves its metrics."""

    def __init__(self):
        self.port = free_port()

    def metrics(self):
        """Returns {name: sum over labels}; empty while the controller does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return {}
        finally:
            connection.close()
        sums = {}
        for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", text, re.M):
            sums[name] = sums.get(name, 0) + float(value)
        return sums


class Embedded:
    """`lockstep up`: one process is API server, store and machines. Its objects live in memory.

    So it is not killed but stopped for a while, as if the machine or the network stalled.
    """

    def __init__(self, build, folder, machines):
        self.folder, self.controller = folder, Controller()
        programs = folder / "bin"
        programs.mkdir()
        for program in ("lockstep-agent", "lockstep-worker"):
            (programs / program).symlink_to(build / "bin" / program)
        # `lockstep` starts the programs next to its own file, which is why that is no link.
        shutil.copy2(build / "bin/lockstep", programs / "lockstep")
        wrapper = programs / "lockstep-controller"
        wrapper.write_text(f'#!/bin/sh\nexec "{build}/bin/lockstep-controller" "$@" '
                           f"--listen 127.0.0.1:{self.controller.port}\n")
        wrapper.chmod(0o755)
        kubeconfig = folder / "up" / "kubeconfig"
        self.up = subprocess.Popen(
            [str(programs / "lockstep"), "up", "--folder", str(folder / "up"), "--machines",
             str(machines), "--history-seconds", "30"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(folder / "up.log", "w"))
        wait_until("lockstep up", lambda: kubeconfig.exists() or self.up.poll() is not None)
        if self.up.poll() is not None:
            raise RuntimeError((folder / "up.log").read_text())
        self.server = Server(kubeconfig)

    def node_pid(self):
        return self.up.pid

    def pod_folder(self):
        return self.folder / "up/node/pods"

    def measured(self):
        return {"API server": self.up.pid, "controller": self.controller_pid()}

    def controller_pid(self):
        return processes.named("lockstep-controller", processes.descendants(self.up.pid))

    def kill_controller(self):
        return processes.kill(self.controller_pid())

    def server_faults(self):
        return {"API server stopped for a while": self.stall}

    def stall(self, random):
        os.kill(self.up.pid, signal.SIGSTOP)
        time.sleep(random.uniform(0.5, 8))
        os.kill(self.up.pid, signal.SIGCONT)

    def stop(self):
        self.up.send_signal(signal.SIGINT)
        try:
            return self.up.wait(150)
        except subprocess.TimeoutExpired:
            self.up.kill()
            return "killed: it did not stop"


class Program(threading.Thread):
    """A program that is started again whenever it ends, until stop()."""

    def __init__(self, arguments, log, folder):
        super().__init__(daemon=True)
        self.arguments, self.log, self.folder, self.stopping = arguments, log, folder, False
        self.process = self.spawn()
        self.start()

    def spawn(self):
        return subprocess.Popen([str(a) for a in self.arguments], cwd=self.folder,
                                stdin=subprocess.DEVNULL, stdout=open(self.log, "a"),
                                stderr=subprocess.STDOUT, start_new_session=True)

    def run(self):
        while True:
            self.process.wait()
            if self.stopping:
                return
            time.sleep(0.2)
            self.process = self.spawn()

    def stop(self):
        self.stopping = True
        self.process.terminate()
        self.join(60)
        processes.kill(self.process.pid)


class Real:
    """kube-apiserver and etcd of tools/cluster, one controller without election, and soak_node.

    soak_node runs the pods as processes: no kubelet, no containers.
    """
    PARTS = ("etcd", "kube-apiserver", "kube-controller-manager")

    def __init__(self, build, folder, machines, cluster):
        self.folder, self.cluster, self.controller = folder, cluster, Controller()
        kubeconfig = cluster / "kubeconfig"
        self.server = Server(kubeconfig)
        self.install(build.parent / "charts/lockstep/files/crds/trainingjobs.lockstep.dev.yaml")
        self.parts = {name: self.adopt(name) for name in self.PARTS}
        # The local node makes its machines once, when it starts.
        wait_until("the server", lambda: self.server.ask("GET", "/api/v1/nodes")[0] == 200)
        (folder / "key").write_text("the key of a soak's controllers")
        self.node = Program([build / "bin/tests/soak_node", kubeconfig, folder / "node",
                             build / "bin", machines], folder / "node.log", folder)
        self.replica = Program(
            [build / "bin/lockstep-controller", "--kubeconfig", kubeconfig, "--key-file", "key",
             "--leader-elect=false", "--qps", "200", "--burst", "400", "--listen",
             f"127.0.0.1:{self.controller.port}"], folder / "controller.log", folder)

    def install(self, definition):
        request = subprocess.run(
            ["python3", "-c", "import json,sys,yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"],
            stdin=open(definition), capture_output=True, text=True, check=True)
        self.server.ask("POST", DEFINITIONS, json.loads(request.stdout))
        wait_until("the definition", lambda: self.server.ask("GET", JOBS)[0] == 200)

    def adopt(self, name):
        """Takes over one of the cluster's processes: the same command, started again if it ends."""
        old = int((self.cluster / f"{name}.pid").read_text())
        arguments = pathlib.Path(f"/proc/{old}/cmdline").read_text().rstrip("\0").split("\0")
        processes.kill(old)
        wait_until(f"the end of {name}", lambda: not processes.is_alive(old))
        return Program(arguments, self.cluster / f"{name}.log", self.cluster)

    def node_pid(self):
        return self.node.process.pid

    def pod_folder(self):
        return self.folder / "node/pods"

    def measured(self):
        return {"API server": self.parts["kube-apiserver"].process.pid,
                "controller": self.replica.process.pid, "local node": self.node.process.pid}

    def kill_controller(self):
        return processes.kill(self.replica.process.pid)

    def server_faults(self):
        return {f"{name} killed": lambda random, name=name: processes.kill(
            self.parts[name].process.pid) for name in ("etcd", "kube-apiserver")}

    def stop(self):
        self.replica.stop()
        self.node.stop()
        for name, program in self.parts.items():
            # tools/cluster down finds it by its file.
            (self.cluster / f"{name}.pid").write_text(f"{program.process.pid}\n")
            program.stopping = True
        return 0
