"""Which of the pods' processes a soak may kill."""
import processes

ETERNAL = "eternal-"
# Kills of one job's ranks and agents. Each failure without progress doubles the wait before the
# restart, up to 2 minutes. A job that is killed as often as it starts would wait for most of a
# short run.
MOST_KILLS = 4


def job_of(environment):
    """Returns the job's name from a process's environment; empty if it is of none."""
    entries = dict(entry.split("=", 1) for entry in environment.split("\0") if "=" in entry)
    return entries.get("LOCKSTEP_JOB_NAME", "")


class Victims:
    def __init__(self, chance, environment=processes.environment, kill=processes.kill):
        self.chance, self.environment, self.kill = chance, environment, kill
        self.kills = {}

    def may_die(self, job):
        return job and not job.startswith(ETERNAL) and self.kills.get(job, 0) < MOST_KILLS

    def kill_one(self, pids):
        """Kills one of the processes whose job may be hit; returns whether there was one."""
        jobs = {pid: job_of(self.environment(pid)) for pid in sorted(pids)}
        pids = [pid for pid, job in jobs.items() if self.may_die(job)]
        if not pids:
            return False
        pid = self.chance.choice(pids)
        self.kills[jobs[pid]] = self.kills.get(jobs[pid], 0) + 1
        return self.kill(pid)
