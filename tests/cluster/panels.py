#!/usr/bin/env python3
"""panels.py PROMETHEUS NAMESPACE JOB: evaluates every query of the dashboard and of the alerts on that server.

Each panel of deploy/grafana/job.json has to show something of the job, which has been restarted once and
has no GPUs: of the panels about them, as of the alerts, the server has to be able to evaluate the
expressions. Waits up to a minute for what needs two scrapes.
"""
import json
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

OF_GPUS = re.compile(r"lockstep_(gpu_|train_mfu_)")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def query(server, expression):
    url = f"{server}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def panels(namespace, job):
    dashboard = json.loads((ROOT / "deploy/grafana/job.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$namespace", namespace).replace("$job", job)
            yield panel["title"], expression.replace("$__rate_interval", "20s")


def alerts():
    text = (ROOT / "deploy/prometheus/alerts.yaml").read_text()
    for match in re.finditer(r"^    expr: (\|\n(?:      .*\n)+|.*\n)", text, re.MULTILINE):
        yield match.group(1).removeprefix("|\n").strip()


def main():
    server, namespace, job = sys.argv[1:]
    of_gpus = [panel for panel in panels(namespace, job) if OF_GPUS.search(panel[1])]
    missing = [panel for panel in panels(namespace, job) if panel not in of_gpus]
    count = len(missing)
    deadline = time.monotonic() + 60
    while missing and time.monotonic() < deadline:
        missing = [panel for panel in missing if not query(server, panel[1])]
        time.sleep(1 if missing else 0)
    for title, expression in missing:
        print(f"panel {title!r} shows no data: {expression}", file=sys.stderr)
    restarts = query(server, f'max(lockstep_job_restarts{{namespace="{namespace}", job="{job}"}})')
    if not restarts or restarts[0]["value"][1] != "1":
        sys.exit(f"expected 1 restart of the job, found {restarts}")
    rules = list(alerts())
    for expression in [*rules, *(expression for _, expression in of_gpus)]:
        query(server, expression)
    print(f"{count - len(missing)} of {count} queries of panels show data, "
          f"{len(rules)} alerts and {len(of_gpus)} queries about GPUs can be evaluated")
    sys.exit(1 if missing or count < 15 or len(rules) < 5 else 0)


if __name__ == "__main__":
    main()
