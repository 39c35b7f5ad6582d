"""What /proc says about processes of this computer."""
import os
import pathlib
import signal

PROC = pathlib.Path("/proc")


def parents():
    """Returns {pid: parent's pid} of all processes that are not zombies."""
    found = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except (OSError, ValueError):
            continue
        if state != "Z":
            found[int(entry.name)] = int(parent)
    return found


def descendants(root):
    children = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def name_of(pid):
    """Returns the program's file name from the command line; empty if the process is gone."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return os.path.basename(words[0]).decode(errors="replace")


def named(name, pids):
    """Returns the first of these processes that runs the program; 0 if none does."""
    return next((pid for pid in pids if name_of(pid) == name), 0)


def is_alive(pid):
    try:
        return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def kill(pid, number=signal.SIGKILL):
    """Returns whether there was such a process."""
    try:
        if pid > 0:
            os.kill(pid, number)
        return pid > 0
    except ProcessLookupError:
        return False


def environment(pid):
    try:
        return (PROC / str(pid) / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def usage(pid):
    """Returns {measure: number} of a process; empty if it is gone."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        handles = len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in fields:
        return {}
    return {"memory KiB": int(fields["VmRSS"].split()[0]), "handles": handles,
            "threads": int(fields["Threads"])}
