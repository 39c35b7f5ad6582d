#!/usr/bin/env python3
"""Measures lockstep-controller on a real API server, compared with Kubernetes' own Job controller.

  tools/cluster up --control-plane-only --controllers garbagecollector,namespace
  bench/controller/measure.py --kubeconfig build/cluster/kubeconfig creation life restarts scale takeover

Prints Markdown tables. The measurement starts both controllers, one at a time and in turns, with
the same QPS and burst. There are no nodes: pods are bound to none and are played (played.py).
Agents are played too, except in `forming`, where agents and ranks are real processes.
  creation  pods per second, for one job of 1,000 pods and for 250 jobs of 4, and the share of the
            requests allowed by QPS and burst that is spent on them
  life      API reads and writes over a job's life: Pending, Running, Succeeded
  restarts  the same for a restart in place
  scale     reconcile and queue latencies and memory with --jobs jobs Running
  takeover  the leader is killed: seconds to the other replica's first write, and pods created twice
  forming   from the last pod's Running to all ranks formed
Played agents listen on port 29400 of all of 127.0.0.0/8. If another program uses the port, run
server and measurement in a network namespace (unshare -n, ip link set lo up).
"""
import argparse
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys
import tempfile

import creation
import operation
from cluster import Server
from played import Agents

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHED = pathlib.Path.home() / ".cache/lockstep/kubernetes/kube-controller-manager"
WITH_AGENTS = ("life", "restarts", "scale")
MEASUREMENTS = ("creation", *WITH_AGENTS, "takeover", "forming")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("measurements", nargs="+", choices=MEASUREMENTS)
    parser.add_argument("--kubeconfig", default=ROOT / "build/cluster/kubeconfig")
    parser.add_argument("--build", default=ROOT / "build", help="where bin/lockstep-controller is")
    parser.add_argument("--controller-manager", default=CACHED, help="kube-controller-manager")
    parser.add_argument("--qps", type=int, nargs="+", default=[20, 50, 100], help="of creation")
    parser.add_argument("--turns", type=int, default=3, help="of creation")
    parser.add_argument("--rate", type=int, default=400, help="QPS where the rate is not the question")
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--restart-pods", type=int, nargs="+", default=[4, 100, 1000])
    parser.add_argument("--jobs", type=int, default=2000, help="of scale")
    parser.add_argument("--pods", type=int, default=2, help="of each job, of scale")
    parser.add_argument("--seconds", type=int, default=30, help="of each phase, of scale")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--leader-pods", type=int, default=200)
    parser.add_argument("--forms", type=int, default=5, help="turns of forming")
    return parser.parse_args()


def processor():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.machine()


def main():
    arguments = read_arguments()
    arguments.build = pathlib.Path(arguments.build).resolve()
    resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
    server = Server(arguments.kubeconfig)
    server.install(ROOT / "charts/lockstep/files/crds/trainingjobs.lockstep.dev.yaml")
    manager = subprocess.run([arguments.controller_manager, "--version"], capture_output=True, text=True)
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores; kube-apiserver "
          f"{server.version()}; kube-controller-manager {manager.stdout.strip()}")
    agents = Agents() if set(arguments.measurements) & set(WITH_AGENTS) else None
    if agents and "forming" in arguments.measurements:
        sys.exit("forming has real agents: measure it in a run of its own")
    with tempfile.TemporaryDirectory(prefix="lockstep-controller-") as folder:
        for name in arguments.measurements:
            module = operation if name in ("scale", "takeover", "forming") else creation
            more = [agents] if name in WITH_AGENTS else []
            getattr(module, name)(server, arguments, folder, *more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
