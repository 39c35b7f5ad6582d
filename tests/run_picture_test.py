#!/usr/bin/env python3
"""README's picture can be drawn: docs/images/run.py shows the beginning and the end of a run's output."""
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "docs/images/run.py"
PROGRESS = [f"0:{second:02}  step {second}/60  loss 2.5  10k tok/s  0:{60 - second:02} left" for second in range(0, 60, 5)]
OUTPUT = ["==> building (dev, 2 jobs; log in build/build.log)", "     10 % (19 of 184 steps, 50 s)",
          "output: /home/somebody/x/build/runs/kjv-gpt-1", *PROGRESS, "step 60: validation loss 1.3", "",
          "And God said < & " + "unto them " * 20, "",
          "kjv-gpt: Complete at step 60 after 1:00", "logs:       /home/somebody/x/build/runs/kjv-gpt-1/logs"]


def draw(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        log.write("\n".join(lines))
        log.flush()
        return subprocess.run([sys.executable, SCRIPT, log.name], capture_output=True, text=True, check=False)


def shown(svg):
    root = xml.etree.ElementTree.fromstring(svg)
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


def main():
    drawn = draw(OUTPUT)
    assert drawn.returncode == 0, drawn.stderr
    lines = shown(drawn.stdout)
    for line in ("$ tools/quickstart", PROGRESS[0], "...", PROGRESS[-1], "step 60: validation loss 1.3",
                 "kjv-gpt: Complete at step 60 after 1:00", "logs:       ~/lockstep/build/runs/kjv-gpt-1/logs"):
        assert line in lines, (line, lines)
    assert PROGRESS[9] not in lines, "the middle is left out"
    assert not any("somebody" in line or "184 steps" in line for line in lines), lines
    assert any(line.startswith("And God said < & unto") for line in lines) and max(map(len, lines)) <= 84, lines
    unfinished = draw(OUTPUT[:-5])
    assert unfinished.returncode != 0 and "did the run complete" in unfinished.stderr, unfinished
    return 0


if __name__ == "__main__":
    sys.exit(main())
