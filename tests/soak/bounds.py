"""Measurements over time, and the rule that says whether they stay bounded."""
import csv
import statistics

# Allowed growth of a measure: this share of its median in the third quarter of the run, and this
# much on top.
SHARE = 0.10
SLACK = {"memory KiB": 4 << 10, "handles": 16, "threads": 4}
SAMPLES_MIN = 10  # in each quarter; with fewer, growth is not judged
SECONDS_MIN = 300  # nor in a shorter run, in which caches and histories still fill


class Series:
    """Samples of all processes, also written to a CSV file as they come."""

    def __init__(self, file):
        self.file = open(file, "w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["seconds", "what", "pid", "measure", "value"])
        self.samples = {}  # (what, measure) -> [(seconds, pid, value)]

    def add(self, seconds, what, pid, measures):
        for measure, value in measures.items():
            self.writer.writerow([f"{seconds:.1f}", what, pid, measure, f"{value:g}"])
            self.samples.setdefault((what, measure), []).append((seconds, pid, value))
        self.file.flush()

    def rows(self, end):
        """Yields what, measure, most, and the medians of the third and the last quarter.

        In the second half of the run neither controller nor server are killed, so their samples
        there are of one process. `end` is the length of the run in seconds.
        """
        for (what, measure), samples in sorted(self.samples.items()):
            third = [value for at, _, value in samples if end / 2 <= at < end * 3 / 4]
            last = [value for at, _, value in samples if end * 3 / 4 <= at <= end]
            most = max(value for _, _, value in samples)
            judged = end >= SECONDS_MIN and min(len(third), len(last)) >= SAMPLES_MIN
            yield (what, measure, most, statistics.median(third) if judged else None,
                   statistics.median(last) if judged else None)


def breach(what, measure, third, last):
    """Returns what is wrong with the growth of a measure; empty if nothing is."""
    if third is None or measure not in SLACK:
        return ""
    allowed = third * (1 + SHARE) + SLACK[measure]
    return "" if last <= allowed else (
        f"{what}: {measure} grows: median {third:g} in the third quarter, {last:g} in the last one, "
        f"allowed {allowed:g}")


def table(rows):
    lines = [f"{'what':<18} {'measure':<12} {'most':>10} {'3rd quarter':>12} {'4th quarter':>12}"]
    for what, measure, most, third, last in rows:
        shown = ["-" if value is None else f"{value:g}" for value in (most, third, last)]
        lines.append(f"{what:<18} {measure:<12} {shown[0]:>10} {shown[1]:>12} {shown[2]:>12}")
    return "\n".join(lines)
