"""The API server as the measurements use it: requests, watches with event times, metrics."""
import base64
import http.client
import json
import math
import pathlib
import random
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time

JOBS = "/apis/lockstep.dev/v1alpha1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LIMIT_SECONDS = 300  # a guard against hangs


def wait_until(what, condition, seconds=LIMIT_SECONDS, interval=0.02):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(interval)


class Server:
    """The API server of a kubeconfig that tools/cluster wrote, with a connection per thread."""

    def __init__(self, kubeconfig):
        self.kubeconfig = str(pathlib.Path(kubeconfig).resolve())
        text = pathlib.Path(kubeconfig).read_text()
        self.host, self.port = re.search(r"server: https://([\d.]+):(\d+)", text).groups()
        self.token = re.search(r"token: (\S+)", text).group(1)
        authority = re.search(r"certificate-authority-data: (\S+)", text).group(1)
        self.tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        self.local = threading.local()

    def connection(self):
        return http.client.HTTPSConnection(self.host, int(self.port), context=self.tls, timeout=600)

    def headers(self, content_type="application/json"):
        return {"Authorization": "Bearer " + self.token, "Content-Type": content_type}

    def text(self, method, path, body=None, content_type="application/json"):
        if not hasattr(self.local, "connection"):
            self.local.connection = self.connection()
        self.local.connection.request(method, path, body, self.headers(content_type))
        response = self.local.connection.getresponse()
        return response.status, response.read().decode()

    def ask(self, method, path, body=None, content_type="application/json"):
        """Returns the answer as an object; raises if the server refuses."""
        text = None if body is None else json.dumps(body)
        status, answer = self.text(method, path, text, content_type)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300]}")
        return json.loads(answer)

    def version(self):
        return self.ask("GET", "/version")["gitVersion"]

    def install(self, definition):
        """Installs the TrainingJob's definition from its YAML file if it is missing."""
        if self.text("GET", JOBS)[0] == 200:
            return
        body = pathlib.Path(definition).read_text()
        status, answer = self.text("POST", DEFINITIONS, body, "application/yaml")
        if status != 201:
            raise RuntimeError(f"installing {definition}: {status} {answer[:300]}")
        wait_until("the definition", lambda: self.text("GET", JOBS)[0] == 200)

    def make_namespace(self, name):
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def remove_namespace(self, name):
        """Deletes jobs and pods immediately.

        The cluster's namespace controller removes the namespace later.
        """
        owners = (f"{JOBS}/namespaces/{name}/trainingjobs", f"/apis/batch/v1/namespaces/{name}/jobs")
        for path in (*owners, f"/api/v1/namespaces/{name}/pods"):
            # With thousands of objects a server gives up after 34 s (504): repeat until none are
            # left.
            path += "?propagationPolicy=Background&gracePeriodSeconds=0"
            wait_until(f"DELETE {path}", lambda: self.text("DELETE", path)[0] < 300)
        self.ask("DELETE", "/api/v1/namespaces/" + name)

    def metrics(self):
        return Metrics(self.text("GET", "/metrics")[1])


class Watcher(threading.Thread):
    """Calls `on_event(type, object, time)` for each event of a collection from now on."""

    def __init__(self, server, path, on_event):
        super().__init__(daemon=True)
        self.on_event, self.is_over = on_event, False
        version = server.ask("GET", path + "?limit=1")["metadata"]["resourceVersion"]
        self.connection = server.connection()
        self.connection.request(
            "GET", f"{path}?watch=true&timeoutSeconds=3000&resourceVersion={version}",
            headers=server.headers())
        self.response = self.connection.getresponse()
        self.start()

    def run(self):
        try:
            for line in iter(self.response.readline, b""):
                now = time.monotonic()
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(str(event["object"]))
                self.on_event(event["type"], event["object"], now)
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            if not self.is_over:
                raise

    def close(self):
        self.is_over = True
        if self.connection.sock:
            self.connection.sock.close()


class Metrics:
    """A metrics page in Prometheus' text format."""
    LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)
    LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        self.values = {}
        for name, labels, value in self.LINE.findall(text):
            key = tuple(sorted(self.LABEL.findall(labels)))
            self.values.setdefault(name, {})[key] = float(value)

    def sum(self, name, **wanted):
        return sum(value for labels, value in self.values.get(name, {}).items()
                   if wanted.items() <= dict(labels).items())

    def grouped(self, name, *labels):
        groups = {}
        for key, value in self.values.get(name, {}).items():
            group = tuple(dict(key).get(label, "") for label in labels)
            groups[group] = groups.get(group, 0) + value
        return groups


def grown(before, after, name, *labels):
    """Returns how much a counter grew, grouped by labels; omits groups that did not grow."""
    old = before.grouped(name, *labels)
    new = after.grouped(name, *labels)
    return {group: value - old.get(group, 0) for group, value in new.items()
            if value > old.get(group, 0)}


def quantile(before, after, histogram, share):
    """Returns a quantile of the observations between two pages, like histogram_quantile()."""
    def bound(text):
        return math.inf if text == "+Inf" else float(text)

    buckets = sorted((bound(le), count) for (le,), count in
                     grown(before, after, histogram + "_bucket", "le").items())
    if not buckets:
        return math.nan
    target = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for high, count in buckets:
        if count >= target:
            return low if math.isinf(high) else low + (high - low) * (target - below) / (count - below)
        low, below = high, count
    return low


def free_port():
    """Returns a free port below the range of ephemeral ports.

    A client that connects too early must not be given the program's own port.
    """
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(20000, 29000)))
                return probe.getsockname()[1]
            except OSError:
                pass


class Program:
    """A process with a log in `folder`; {port} in `arguments` and `url` becomes a free port."""

    def __init__(self, arguments, folder, url):
        self.port = free_port()
        self.log = tempfile.NamedTemporaryFile(dir=folder, suffix=".log", delete=False)
        self.url = url.format(port=self.port)
        self.process = subprocess.Popen([str(a).format(port=self.port) for a in arguments],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def get(self, path):
        """Returns the text at `path`, or None unless the program answers 200."""
        kind = http.client.HTTPConnection
        more = {}
        if self.url.startswith("https"):
            kind, more = http.client.HTTPSConnection, {"context": ssl._create_unverified_context()}
        connection = kind("127.0.0.1", self.port, timeout=30, **more)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
            return text if response.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def wait_ready(self, path):
        def is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"ended: {pathlib.Path(self.log.name).read_text()[-2000:]}")
            return self.get(path) is not None
        wait_until(f"{path} of {self.process.args[0]}", is_ready, 60)
        return self

    def metrics(self):
        return Metrics(wait_until("metrics", lambda: self.get("/metrics")))

    def memory(self):
        """Returns resident memory in bytes: (now, peak)."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return tuple(int(re.search(name + r":\s+(\d+)", text).group(1)) * 1024
                     for name in ("VmRSS", "VmHWM"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()
