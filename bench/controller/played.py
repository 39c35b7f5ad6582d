"""Played (simulated) pods and agents: no kubelet, and one process that answers for all agents.

A played pod is bound to no node. It is Running, with its own address in 127.0.0.0/8, as soon as it
is seen, and Succeeded when its agent is told to exit. That takes two status patches; a kubelet
sends a few more. A played agent answers the controller as common/api/agent_messages.h defines. It
accepts every round immediately, and its ranks run until they are told to end. It is of a version
without sessions, so the controller sends it the token.
"""
import asyncio
import concurrent.futures
import itertools
import json
import re
import threading
import time

from cluster import Watcher

AGENT_PORT = 29400
STRATEGIC = "application/strategic-merge-patch+json"


class Agent:
    def __init__(self, loop, ip, job_uid, index, incarnation):
        self.ip, self.loop = ip, loop
        self.state = {"protocol": 1, "sequence": 1, "bootId": ip, "jobUid": job_uid,
                      "nodeIndex": index, "incarnation": incarnation, "round": 0, "hash": "",
                      "phase": "Idle", "workers": []}
        self.changed = asyncio.Event()
        self.on_round = self.on_exit = None
        self.failed_at = None

    def set(self, **fields):
        """Must be called on the loop's thread."""
        self.state.update(fields)
        self.state["sequence"] += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def worker(self, running, **fields):
        return {"rank": self.state["nodeIndex"], "localRank": 0, "pid": 1, "running": running,
                "phase": "Training", **fields}

    def assign(self, body):
        action = re.search(rb'"action":"(\w+)"', body).group(1)
        if action == b"Exit":
            self.set(phase="Exiting")
            if self.on_exit:
                self.on_exit(self)
            return
        number = int(re.search(rb'"round":(\d+)', body).group(1))
        if number <= self.state["round"]:
            return
        self.failed_at = None
        self.set(round=number, hash=re.search(rb'"hash":"(\w+)"', body).group(1).decode(),
                 phase="Running", workers=[self.worker(True)], progress=None, failedSecondsAgo=0)
        if self.on_round:
            self.on_round(self)

    def complete(self):
        done = self.worker(False, exitCode=0, reason="Completed")
        self.loop.call_soon_threadsafe(lambda: self.set(phase="Completed", workers=[done]))

    def fail(self):
        self.failed_at = time.monotonic()
        dead = self.worker(False, exitCode=1, reason="Error", failedSecondsAgo=0.001)
        self.loop.call_soon_threadsafe(
            lambda: self.set(phase="Failed", workers=[dead], failedSecondsAgo=0.001))

    def progress(self, step):
        counts = {"step": step, "steps": 1000000, "loss": 3.0 - step * 1e-6}
        self.loop.call_soon_threadsafe(lambda: self.set(progress=counts))

    def text(self):
        if self.failed_at is not None:
            ago = max(0.001, time.monotonic() - self.failed_at)
            self.state["failedSecondsAgo"] = self.state["workers"][0]["failedSecondsAgo"] = ago
        return json.dumps({key: value for key, value in self.state.items() if value is not None})


class Agents:
    """All agents behind one listening socket; the destination address selects the agent."""
    LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
    POLL = re.compile(r"since=(\d+)&timeoutSeconds=(\d+)")

    def __init__(self):
        self.by_ip = {}
        self.loop = asyncio.new_event_loop()
        listening = threading.Event()

        def run():
            asyncio.set_event_loop(self.loop)
            self.loop.run_until_complete(
                asyncio.start_server(self.serve, "0.0.0.0", AGENT_PORT, backlog=4096))
            listening.set()
            self.loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        if not listening.wait(10):
            raise RuntimeError(f"port {AGENT_PORT} is taken: run this in a network of its own (unshare -n)")

    def add(self, ip, job_uid, index, incarnation):
        agent = self.by_ip[ip] = Agent(self.loop, ip, job_uid, index, incarnation)
        return agent

    async def serve(self, reader, writer):
        ip = writer.get_extra_info("sockname")[0]
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = self.LENGTH.search(head)
                body = await reader.readexactly(int(length.group(1))) if length else b""
                text = await self.answer(self.by_ip.get(ip), head, body)
                status = b"200 OK" if text else b"404 Not Found"
                text = (text or "{}").encode()
                writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                             % (status, len(text)) + text)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, agent, head, body):
        if agent is None or head.startswith(b"GET /v1/session "):
            return None
        if head.startswith(b"PUT"):
            agent.assign(body)
            return agent.text()
        since, timeout = map(int, self.POLL.search(head.split(b"\r\n", 1)[0].decode()).groups())
        if agent.state["sequence"] <= since:
            try:
                await asyncio.wait_for(agent.changed.wait(), timeout)
            except asyncio.TimeoutError:
                pass
        return agent.text()


def running_status(ip):
    conditions = [{"type": name, "status": "True"} for name in ("PodScheduled", "Ready")]
    return {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                       "conditions": conditions}}


class Pods:
    """Plays the pods of a namespace, and records when each was seen.

    `agents` is None for pods of another controller, which have no agents. If `runs` is False, pods
    stay Pending until run() is called.
    """
    addresses = itertools.count(1)

    def __init__(self, server, namespace, agents=None, runs=True, on_round=None, threads=4):
        self.server, self.agents, self.runs, self.on_round = server, agents, runs, on_round
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.added, self.deleted, self.by_name, self.ips = [], [], {}, {}
        self.patched = {"Running": 0, "Succeeded": 0, "Failed": 0}
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.watcher = Watcher(server, self.path, self.on_event)

    def on_event(self, kind, pod, now):
        name = pod["metadata"]["name"]
        if kind == "ADDED":
            self.added.append((now, name))
            self.by_name[name] = pod
            if self.runs:
                self.run(name)
        elif kind == "DELETED":
            self.deleted.append((now, name))
            self.by_name.pop(name, None)

    def run(self, name):
        return self.pool.submit(self.make_running, name)

    def make_running(self, name):
        metadata = self.by_name[name]["metadata"]
        number = next(Pods.addresses)
        ip = self.ips[name] = f"127.{1 + number // 62500}.{1 + number // 250 % 250}.{1 + number % 250}"
        if self.agents:
            agent = self.agents.add(ip, metadata["ownerReferences"][0]["uid"],
                                    int(metadata["labels"]["lockstep.dev/node-index"]),
                                    int(metadata["labels"]["lockstep.dev/incarnation"]))
            agent.on_round = self.on_round
            agent.on_exit = lambda agent: self.pool.submit(self.end, name, "Succeeded")
        self.patch(name, running_status(ip))
        self.patched["Running"] += 1

    def end(self, name, phase):
        self.patch(name, {"status": {"phase": phase}})
        self.patched[phase] += 1

    def patch(self, name, body):
        try:
            self.server.ask("PATCH", f"{self.path}/{name}/status", body, STRATEGIC)
        except RuntimeError as error:
            if " 404 " not in str(error):  # deleted meanwhile
                print("a played pod:", error)

    def agent(self, name):
        return self.agents.by_ip[self.ips[name]]

    def close(self):
        self.watcher.close()
        self.pool.shutdown(wait=True, cancel_futures=True)
