"""The jobs of a soak: what kinds there are, how each must end, and an account of every one."""
import dataclasses
import time

from cluster import JOBS

MANY = 100000  # restarts: faults must not use them up
LATE_SECONDS = 600  # after its time is up, however busy the computer is


def sleeper(seconds, end="exit 0"):
    return ["sh", "-c", f"sleep {seconds:.1f}; {end}"]


def eternal(folder):
    """Runs until the file `end` exists, and reports its progress."""
    return ["sh", "-c", f'i=0; while [ ! -e "{folder}/end" ]; do i=$((i + 1)); sleep 1; '
            'echo "{\\"step\\": $i}" >>"$LOCKSTEP_PROGRESS_FILE"; done']


@dataclasses.dataclass
class Kind:
    share: int
    spec: callable  # (seconds, folder) -> spec
    ends: tuple = ()  # condition and reason (None: any); empty: the user deletes it, or its ttl


def failing(code, **failure):
    return lambda seconds, folder: {"command": sleeper(seconds, f"exit {code}"), "failure": failure}


def train(seconds, folder):
    return {"nodes": 1, "checkpoint": {"path": f"{folder}/checkpoints"}, "train": {
        "model": {"layers": 1, "width": 16, "heads": 1, "context": 16},
        "data": {"path": f"{folder}/text", "tokenizer": "bytes"},
        "steps": 20, "batch": {"global": 2}}}


KINDS = {
    "completes": Kind(8, lambda s, f: {"command": sleeper(s)}, ("Complete", "WorkersCompleted")),
    "is suspended": Kind(2, lambda s, f: {"command": sleeper(s)}, ("Complete", None)),
    "trains": Kind(1, train, ("Complete", None)),
    "fails": Kind(2, failing(3, maxRestarts=1), ("Failed", "TooManyRestarts")),
    "has a rule": Kind(1, failing(7, maxRestarts=MANY, rules=[
        {"exitCodes": [7], "action": "Fail"}]), ("Failed", "FailureRule")),
    "has a deadline": Kind(1, lambda s, f: {
        "command": sleeper(86400), "activeDeadlineSeconds": max(1, int(s))},
        ("Failed", "DeadlineExceeded")),
    "is deleted": Kind(2, lambda s, f: {"command": sleeper(86400)}),
    "expires": Kind(2, lambda s, f: {"command": sleeper(s), "ttlSecondsAfterFinished": 1}),
}


@dataclasses.dataclass
class Job:
    name: str
    kind: str
    seconds: float  # of its program
    uid: str
    created: float
    state: str = "runs"  # then suspended, resumed, deleted


class Users:
    """Keep `target` jobs in the cluster, and follow each from its creation until it is gone."""

    def __init__(self, server, random, folder, target):
        self.server, self.random, self.folder, self.target = server, random, folder, target
        self.jobs = {}
        self.created = 0
        self.gone = {kind: 0 for kind in KINDS}
        self.problems = []
        self.creates = True

    def create(self, name, kind, seconds, spec):
        body = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": name},
                "spec": {"nodes": self.random.choice((1, 1, 2, 3)), "terminationGracePeriodSeconds": 1,
                         "failure": {"maxRestarts": MANY}, **spec}}
        code, answer = self.server.ask("POST", JOBS, body)
        if code == 409:  # the reply to an earlier try was lost
            code, answer = self.server.ask("GET", f"{JOBS}/{name}")
        if code not in (200, 201):
            self.problems.append(f"{name} ({kind}) was refused: {code} {answer.get('message')}")
            return
        self.jobs[name] = Job(name, kind, seconds, answer["metadata"]["uid"], time.monotonic())

    def create_one(self, longest):
        kind = self.random.choices(list(KINDS), [kind.share for kind in KINDS.values()])[0]
        seconds = self.random.uniform(0.2, longest)
        folder = self.folder / f"job-{self.created}"
        if kind == "trains":
            folder.mkdir()
            (folder / "text").write_text("In the beginning was the Word. " * 100)
        self.create(f"j{self.created}", kind, seconds, KINDS[kind].spec(seconds, folder))
        self.created += 1

    def delete(self, job):
        code, answer = self.server.ask(
            "DELETE", f"{JOBS}/{job.name}", {"preconditions": {"uid": job.uid}})
        if code not in (200, 202, 404):
            self.problems.append(f"{job.name}: DELETE: {code} {answer.get('message')}")
        job.state = "deleted"

    def set_suspended(self, job, value):
        code, answer = self.server.ask("PATCH", f"{JOBS}/{job.name}", {"spec": {"suspend": value}})
        if code != 200 and not (code == 409 or is_over(answer)):
            self.problems.append(f"{job.name}: suspend: {code} {answer.get('message')}")
        job.state = "suspended" if value else "resumed"

    def follow(self, job, found):
        """Looks at one job; `found` is its object, None if the server has none."""
        age = time.monotonic() - job.created
        if found is None or found["metadata"]["uid"] != job.uid:
            if job.state != "deleted" and job.kind != "expires":
                self.problems.append(f"{job.name} ({job.kind}) is lost, {age:.0f} s old")
            self.gone[job.kind] = self.gone.get(job.kind, 0) + 1
            del self.jobs[job.name]
            return
        if job.state == "deleted" or job.kind == "eternal":
            return
        ended = end_of(found)
        if ended:
            self.judge(job, found, ended)
        elif job.kind == "is deleted" and age > job.seconds:
            self.delete(job)
        elif job.kind == "is suspended" and job.state == "runs" and age > job.seconds / 2:
            self.set_suspended(job, True)
        elif job.state == "suspended" and age > job.seconds:
            self.set_suspended(job, False)
        if age > 2 * job.seconds + LATE_SECONDS and job.state != "late":
            job.state = "late"
            self.problems.append(f"{job.name} ({job.kind}) has not ended after {age:.0f} s: "
                                 f"{found.get('status', {}).get('state')}")

    def judge(self, job, found, ended):
        wanted = KINDS[job.kind].ends
        right = not wanted or (ended[0] == wanted[0] and wanted[1] in (None, ended[1]))
        if job.kind == "expires":
            right = ended[0] == "Complete"
        if not right:
            self.problems.append(f"{job.name} ({job.kind}) ended as {ended}, expected {wanted}: "
                                 f"{found['status'].get('lastFailure')}")
        if job.kind != "expires":
            self.delete(job)

    def look(self, longest):
        """One round: lists all jobs, follows each, and creates what is missing."""
        objects = {item["metadata"]["name"]: item for item in self.server.items(JOBS)}
        for job in list(self.jobs.values()):
            self.follow(job, objects.get(job.name))
        # Not all at once: a cluster's jobs come one by one.
        missing = self.target - len(self.jobs) if self.creates else 0
        for _ in range(min(missing, max(1, self.target // 20))):
            self.create_one(longest)


def end_of(job):
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["type"], condition["reason"]
    return None


def is_over(job):
    return end_of(job) is not None
