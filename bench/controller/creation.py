"""Pods created per second at equal rates, and requests per job life and per restart in place."""
import statistics
import threading
import time

from cluster import wait_until
from played import Pods
from programs import CONTROLLERS, create_jobs, lockstep, requests, served, training_job

SHAPES = ((1, 1000), (250, 4))


def name_of(shape):
    return f"{shape[0]} x {shape[1]}"


def spread(values, form="{:.1f}"):
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else \
        f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def create_once(server, arguments, folder, controller, shape, qps):
    """Creates the jobs and waits for their last pod. All pods stay Pending."""
    name, start, make = controller
    jobs, pods = shape
    namespace = f"creation-{time.monotonic_ns()}"
    server.make_namespace(namespace)
    program = start(server, arguments, folder, qps)
    seen = Pods(server, namespace, runs=False)
    time.sleep(2)  # the rate limiter's bucket fills again after the start
    before, own_before = server.metrics(), program.metrics()
    began = time.monotonic()
    create_jobs(server, namespace, make, jobs, pods)
    wait_until(f"{jobs * pods} pods of {name}", lambda: len(seen.added) >= jobs * pods, 600)
    took = seen.added[jobs * pods - 1][0] - began
    own, after = requests(own_before, program.metrics()), server.metrics()
    seen.close()
    program.stop()
    server.remove_namespace(namespace)
    allowed = qps + qps * took  # the burst equals the rate
    counts = served(before, after)
    creates = counts.get("POST pods", 0) + counts.get("POST secrets", 0)
    return {"seconds": took, "rate": jobs * pods / took, "pods": jobs * pods / allowed,
            "creates": creates / allowed, "requests": sum(own.values()), "counts": counts}


def creation(server, arguments, folder):
    print(f"\n### Pods created a second\n\nBurst = QPS; {arguments.turns} turns, taken in turn.\n")
    print("| QPS | jobs x pods | controller | seconds | pods/s | allowed requests spent on pods | "
          "on pods and Secrets | requests for each pod |\n|---|---|---|---|---|---|---|---|")
    last = {}
    for qps in arguments.qps:
        turns = {}
        for _ in range(arguments.turns):
            for shape in SHAPES:
                for controller in CONTROLLERS:
                    turn = create_once(server, arguments, folder, controller, shape, qps)
                    turns.setdefault((shape, controller[0]), []).append(turn)
                    last[shape, controller[0]] = turn["counts"]
        for (shape, name), all_turns in turns.items():
            def column(key, form):
                return spread([turn[key] for turn in all_turns], form)
            each = statistics.median(turn["requests"] for turn in all_turns) / (shape[0] * shape[1])
            print(f"| {qps} | {name_of(shape)} | {name} | {column('seconds', '{:.1f}')} | "
                  f"{column('rate', '{:.1f}')} | {column('pods', '{:.1%}')} | "
                  f"{column('creates', '{:.1%}')} | {each:.2f} |", flush=True)
    print("\nWhat the server counted in the last turns, until the last pod:\n")
    for (shape, name), counts in last.items():
        print(f"- {name}, {name_of(shape)}: "
              + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))


class Life:
    """Ends the pods once all of them run, in the way that each controller counts as success."""

    def __init__(self, server, namespace, agents, count):
        self.count, self.started, self.agents = count, 0, agents
        self.lock = threading.Lock()
        self.all_started = threading.Event()
        self.pods = Pods(server, namespace, agents, on_round=self.on_round if agents else None)

    def on_round(self, agent):
        with self.lock:
            self.started += 1
            if self.started == self.count:
                self.all_started.set()

    def run(self):
        """Blocks until all pods have Succeeded."""
        if self.agents:
            wait_until("all ranks", self.all_started.is_set)
            for name in list(self.pods.by_name):
                self.pods.agent(name).complete()
        else:
            wait_until("all pods", lambda: self.pods.patched["Running"] == self.count)
            for name in list(self.pods.by_name):
                self.pods.pool.submit(self.pods.end, name, "Succeeded")
        wait_until("their end", lambda: self.pods.patched["Succeeded"] == self.count)


def are_complete(server, path):
    items = server.ask("GET", path)["items"]
    return all(any(one["type"] == "Complete" and one["status"] == "True"
                   for one in item.get("status", {}).get("conditions", [])) for item in items)


def live_once(server, arguments, folder, controller, shape, agents):
    name, start, make = controller
    jobs, pods = shape
    namespace = f"life-{time.monotonic_ns()}"
    server.make_namespace(namespace)
    program = start(server, arguments, folder, arguments.rate)
    life = Life(server, namespace, agents if name.startswith("lockstep") else None, jobs * pods)
    time.sleep(2)
    before, own_before = server.metrics(), program.metrics()
    create_jobs(server, namespace, make, jobs, pods)
    life.run()
    path = make("any", 1)[0].format(namespace)
    wait_until("completion", lambda: are_complete(server, path), interval=0.5)
    time.sleep(2)  # for requests after completion
    own, counts = requests(own_before, program.metrics()), served(before, server.metrics())
    life.pods.close()
    program.stop()
    server.remove_namespace(namespace)
    return own, counts


def life(server, arguments, folder, agents):
    print("\n### Requests over a job's life\n\nPods are played: Pending, Running, Succeeded; "
          f"QPS {arguments.rate}.\n\n| jobs x pods | controller | reads | writes | reads for each pod | "
          "writes for each pod | of them |\n|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for controller in CONTROLLERS:
            own, counts = live_once(server, arguments, folder, controller, shape, agents)
            pods = shape[0] * shape[1]
            reads = own.get("GET", 0) + own.get("LIST", 0) + own.get("WATCH", 0)
            writes = sum(own.values()) - reads
            detail = ", ".join(f"{count} {what}" for what, count in sorted(counts.items())
                               if not what.startswith(("GET", "LIST", "WATCH", "POST trainingjobs",
                                                       "POST jobs")) and what != "PATCH pods/status")
            print(f"| {name_of(shape)} | {controller[0]} | {reads} | {writes} | {reads / pods:.3f} | "
                  f"{writes / pods:.3f} | {detail} |", flush=True)


def restarts(server, arguments, folder, agents):
    """Measures restarts in place: one rank fails again and again while all pods stay alive."""
    print("\n### Requests for a restart in place\n\n| pods | restarts | reads | writes | of them | "
          "writes for each pod and restart | seconds from the failure to the last agent's new round |\n"
          "|---|---|---|---|---|---|---|")
    for pods in arguments.restart_pods:
        namespace = f"restart-{time.monotonic_ns()}"
        server.make_namespace(namespace)
        program = lockstep(server, arguments, folder, arguments.rate)
        played = Pods(server, namespace, agents)
        path, body = training_job("j", pods, failure={"maxRestarts": 100})
        server.ask("POST", path.format(namespace), body)

        def in_round(number):
            return lambda: len(played.ips) == pods and all(
                agents.by_ip[ip].state["round"] == number for ip in list(played.ips.values()))

        def is_running():
            status = server.ask("GET", path.format(namespace) + "/j").get("status", {})
            return status.get("state") == "Running"

        wait_until("round 1", in_round(1))
        wait_until("Running", is_running, interval=0.2)
        time.sleep(2)
        before, own_before, seconds = server.metrics(), program.metrics(), []
        for number in range(2, 2 + arguments.restarts):
            victim = played.agent(f"j-worker-{number % pods}-1")
            # Without progress between failures, the controller would back off longer each time.
            for ip in played.ips.values():
                agents.by_ip[ip].progress(number * 100)
            time.sleep(2)
            began = time.monotonic()
            victim.fail()
            wait_until(f"round {number}", in_round(number), interval=0.002)
            seconds.append(time.monotonic() - began)
            wait_until("Running", is_running, interval=0.2)
        own, counts = requests(own_before, program.metrics()), served(before, server.metrics())
        reads = own.get("GET", 0) + own.get("LIST", 0) + own.get("WATCH", 0)
        writes = sum(own.values()) - reads
        detail = ", ".join(f"{count} {what}" for what, count in sorted(counts.items())
                           if not what.startswith(("GET", "LIST", "WATCH")))
        print(f"| {pods} | {arguments.restarts} | {reads} | {writes} | {detail} | "
              f"{writes / pods / arguments.restarts:.4f} | {spread(seconds, '{:.3f}')} |", flush=True)
        played.close()
        program.stop()
        server.remove_namespace(namespace)
