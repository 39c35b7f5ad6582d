#!/usr/bin/env python3
"""scrape_config.py: reads `kubectl get pods --all-namespaces -o json`, prints a configuration for Prometheus.

It is deploy/prometheus/scrape.yaml with a list of targets instead of Kubernetes' discovery, which Debian's Prometheus
lacks. The targets have the labels that the discovery would give them.
"""
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def label_name(key):
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def targets(pod):
    """Yields a target for each declared port."""
    metadata, address = pod["metadata"], pod.get("status", {}).get("podIP")
    labels = {"namespace": metadata["namespace"], "pod_name": metadata["name"], "pod_ip": address}
    for kind in "labels", "annotations":
        for key, value in metadata.get(kind, {}).items():
            labels[f"pod_{kind[:-1]}_{label_name(key)}"] = value
            labels[f"pod_{kind[:-1]}present_{label_name(key)}"] = "true"
    for container in pod["spec"]["containers"] if address else []:
        for port in container.get("ports", []):
            own = {**labels, "pod_container_port_name": port.get("name", "")}
            yield {"targets": [f"{address}:{port['containerPort']}"],
                   "labels": {f"__meta_kubernetes_{key}": value for key, value in own.items()}}


def main():
    pods = json.load(sys.stdin)["items"]
    config = yaml.safe_load((ROOT / "deploy/prometheus/scrape.yaml").read_text())
    config["global"] = {"scrape_interval": "2s"}
    for scrape in config["scrape_configs"]:
        discovery = scrape.pop("kubernetes_sd_configs")[0]
        names = discovery.get("namespaces", {}).get("names")
        scrape["static_configs"] = [target for pod in pods if not names or pod["metadata"]["namespace"] in names
                                    for target in targets(pod)]
    print(yaml.safe_dump(config))


if __name__ == "__main__":
    main()
