#!/usr/bin/env python3
"""Checks on a real Prometheus that a pod which lies about its labels changes only its own series.

Scrapes three pods as the PodMonitor of tests/chart/golden/monitored.yaml says, and as
deploy/prometheus/scrape.yaml says: an honest one, one that claims to be the honest one, and one with too
many series. Exits with 77 if prometheus or PyYAML is not installed.
"""
import http.server
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE = 120  # seconds until a server that does not answer is a failure

HONEST = """\
lockstep_train_loss{job="mine",namespace="good",node_index="0"} 1
lockstep_build_info{job="mine",namespace="good",node_index="0",version="1"} 1
"""
# The same series, others of the same pod and of the target, a controller's, one from the future, and
# labels that Prometheus makes of labels in conflict.
LIES = """\
lockstep_train_loss{job="mine",namespace="good",node_index="0"} 666
lockstep_train_loss{job="mine",namespace="good",node_index="0",pod="mine-worker-0-1",rank="3"} 666
lockstep_train_loss{exported_job="mine",exported_namespace="good",exported_exported_pod="mine-worker-0-1",rank="4"} 666
lockstep_train_loss{job="mine",namespace="good",instance="10.0.0.1:29400",rank="5"} 666 99999999999000
lockstep_goodput_ratio{job="mine",namespace="good"} 666
leader_election_master_status{name="lockstep-controller",namespace="lockstep-system"} 666
up{job="mine",namespace="good"} 666
ALERTS{alertname="LockstepNobodyLeads",alertstate="firing"} 666
"""


def serve(text):
    """Serves the text on a port of its own; returns the server."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def snake(name):
    return re.sub(r"[A-Z]", lambda match: "_" + match.group().lower(), name)


def snaked(rules):
    return [{snake(key): value for key, value in rule.items()} for rule in rules]


def from_pod_monitor(documents):
    """Returns the scrape configuration that the Prometheus operator makes of the PodMonitor."""
    monitor = next(each for each in documents if each and each["kind"] == "PodMonitor")
    spec = monitor["spec"]
    endpoint = spec["podMetricsEndpoints"][0]
    own = [{"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
           {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
           {"target_label": "job", "replacement": "lockstep-system/lockstep-jobs"},
           {"target_label": "endpoint", "replacement": endpoint["port"]}]
    config = {"job_name": "podMonitor", "honor_labels": endpoint.get("honorLabels", False),
              "honor_timestamps": endpoint.get("honorTimestamps", True),
              "relabel_configs": own + snaked(endpoint.get("relabelings", [])),
              "metric_relabel_configs": snaked(endpoint.get("metricRelabelings", []))}
    for limit in ("sampleLimit", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit"):
        if limit in spec:
            config[snake(limit)] = spec[limit]
    return config


def target(server, namespace, job):
    """Returns the target that Kubernetes' discovery makes of a pod of the job."""
    labels = {"namespace": namespace, "pod_name": f"{job}-worker-0-1", "pod_container_port_name": "agent",
              "pod_label_app_kubernetes_io_managed_by": "lockstep",
              "pod_labelpresent_lockstep_dev_job_name": "true", "pod_label_lockstep_dev_job_name": job,
              "pod_label_lockstep_dev_node_index": "0"}
    return {"targets": [f"127.0.0.1:{server.server_port}"],
            "labels": {f"__meta_kubernetes_{key}": value for key, value in labels.items()}}


class Prometheus:
    """A Prometheus with one scrape configuration."""

    def __init__(self, yaml, folder, config):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        file = pathlib.Path(folder) / "prometheus.yaml"
        file.write_text(yaml.safe_dump({"global": {"scrape_interval": "200ms"}, "scrape_configs": [config]}))
        self.log = open(pathlib.Path(folder) / "log", "w+")
        self.process = subprocess.Popen(
            ["prometheus", "--config.file", file, "--storage.tsdb.path", f"{folder}/data",
             "--web.listen-address", f"127.0.0.1:{port}"], stdout=self.log, stderr=self.log)

    def query(self, expression):
        """Returns the series as pairs of labels and value; none while the server starts."""
        if self.process.poll() is not None:
            self.log.seek(0)
            sys.exit(f"prometheus ended: {self.log.read()[-2000:]}")
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.load(answer)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return []
        return [(each["metric"], float(each["value"][1])) for each in found]

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def problems_of(prometheus):
    """Returns what is wrong with the series once all three pods were scraped."""
    deadline = time.monotonic() + PATIENCE
    while len(prometheus.query("up")) < 3 or not prometheus.query("lockstep_train_loss"):
        if time.monotonic() > deadline:
            return [f"expected three scraped pods, found {prometheus.query('up')}"]
        time.sleep(0.1)
    problems = []
    honest = {"namespace": "good", "pod": "mine-worker-0-1", "job": "mine"}
    liar = {"namespace": "bad", "pod": "theirs-worker-0-1", "job": "theirs"}
    for labels, value in prometheus.query('{__name__=~".+"}'):
        own = {key: labels.get(key) for key in honest}
        if value == 666 and own != liar:
            problems.append(f"a lie under foreign labels: {labels}")
        if any(key.startswith("exported_") for key in labels):
            problems.append(f"a label of the pod's own: {labels}")
    for name in ("lockstep_goodput_ratio", "leader_election_master_status", "ALERTS"):
        if prometheus.query(name):
            problems.append(f"{name}: a pod's series was kept")
    selector = '{namespace="good", job="mine"}'
    values = [value for _, value in prometheus.query("lockstep_train_loss" + selector)]
    if values != [1]:
        problems.append(f"the honest job's loss is {values}, not [1]")
    if len(prometheus.query('lockstep_train_loss{namespace="bad"}')) != 4:
        problems.append("expected four series of the liar's own")
    ups = {labels["namespace"]: value for labels, value in prometheus.query("up")}
    if ups != {"good": 1, "bad": 1, "greedy": 0}:
        problems.append(f"expected that only the pod with too many series is not scraped, found {ups}")
    return problems


def main():
    try:
        import yaml
    except ImportError:
        yaml = None
    if yaml is None or shutil.which("prometheus") is None:
        print("skipped: Debian's prometheus and python3-yaml are needed")
        sys.exit(77)
    golden = (ROOT / "tests/chart/golden/monitored.yaml").read_text()
    plain = yaml.safe_load((ROOT / "deploy/prometheus/scrape.yaml").read_text())
    configs = [from_pod_monitor(yaml.safe_load_all(golden)),
               next(each for each in plain["scrape_configs"] if each["job_name"] == "lockstep-jobs")]
    many = "".join(f'lockstep_train_loss{{rank="{rank}"}} 1\n' for rank in range(5001))
    pods = [target(serve(HONEST), "good", "mine"), target(serve(LIES), "bad", "theirs"),
            target(serve(many), "greedy", "many")]
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        servers = {}
        for config in configs:
            config.pop("kubernetes_sd_configs", None)  # Debian's Prometheus has no Kubernetes discovery
            config["static_configs"] = pods
            own = pathlib.Path(folder) / config["job_name"]
            own.mkdir()
            servers[config["job_name"]] = Prometheus(yaml, own, config)
        try:
            for name, prometheus in servers.items():
                problems += [f"{name}: {each}" for each in problems_of(prometheus)]
        finally:
            for prometheus in servers.values():
                prometheus.close()
    print("\n".join(problems) or "a pod that lies changes only its own series")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
