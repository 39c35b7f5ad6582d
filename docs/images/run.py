#!/usr/bin/env python3
"""Draws README's picture, docs/images/run.svg, from the output of a real run:

  tools/quickstart 2>&1 | tee run.log
  docs/images/run.py run.log >docs/images/run.svg

A second argument replaces the command that the picture shows. The picture has the beginning and the end of the
output. A line "..." marks what is left out. The checkout's folder is shown as ~/lockstep, and long lines are wrapped.
"""
import html
import pathlib
import re
import sys
import textwrap

HEAD_LINES = 8  # of the training, from its first line on
COLUMNS = 84
MARGIN, TOP, LINE, CHARACTER = 20, 58, 20, 8.43

STYLE = ('text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d6deeb;'
         "white-space:pre}.prompt{fill:#7fdbca}.tool{fill:#82aaff}.event{fill:#ecc48d}.sample{fill:#c3e88d}"
         ".gap{fill:#637777}")


def checkout(lines):
    """The folder of the checkout, from the line that names the output folder."""
    output = next(line for line in lines if line.startswith("output: "))
    return re.fullmatch(r"output: (.*?)/(build/runs|lockstep-runs)/.*", output).group(1)


def selected(lines, command):
    """The lines to show, each with its class; lines of the build's progress are left out."""
    folder = checkout(lines)
    lines = [line.replace(folder, "~/lockstep") for line in lines]
    lines = [line for line in lines if not re.match(r" +\d+ %", line)]
    tool = [line for line in lines if line.startswith("==> ")]
    training = lines[lines.index(tool[-1]) + 1:] if tool else lines
    training = [line for line in training if not line.startswith("output: ")]
    # The sample is between empty lines and may have some itself; the last losses are before it, and
    # the line that names the job's state is after it.
    ends = [i for i, line in enumerate(training) if re.match(r"[\w.-]+: Complete ", line)]
    if "" not in training or not ends:
        sys.exit("run.py: the output has no sample and no completed job; did the run complete?")
    sample_at = training.index("")
    shown = [("prompt", "$ " + command)]
    shown += [("tool", line) for line in tool if "building" in line or "writing" in line]
    shown += [("", line) for line in training[:HEAD_LINES]]
    shown += [("gap", "...")]
    shown += [("", line) for line in training[sample_at - 3:sample_at]]
    sample_end = ends[-1]
    shown += [("sample", line) for line in training[sample_at:sample_end]]
    shown += [("", line) for line in training[sample_end:]]
    return shown


def kind(given, line):
    """The class of a line: events stand out among the lines of progress."""
    if given:
        return given
    return "" if re.match(r"\d+:\d\d |[a-z ]+: +~", line) else "event"


def svg(shown):
    rows = []
    for given, line in shown:
        for part in textwrap.wrap(line, COLUMNS, replace_whitespace=False) or [""]:
            rows.append((kind(given, line), part))
    width = round(2 * MARGIN + CHARACTER * max(len(text) for _, text in rows))
    height = TOP + LINE * len(rows) + 4
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'height="{height}" role="img" aria-labelledby="title">',
           '<title id="title">A terminal in which Lockstep trains a small GPT, which then writes text</title>',
           f"<style>{STYLE}</style>",
           f'<rect width="{width}" height="{height}" rx="10" fill="#0b1622"/>']
    for x, color in ((22, "#ff5f57"), (40, "#febc2e"), (58, "#28c840")):
        out.append(f'<circle cx="{x}" cy="20" r="5.5" fill="{color}"/>')
    for i, (name, text) in enumerate(rows):
        attribute = f' class="{name}"' if name else ""
        out.append(f'<text x="{MARGIN}" y="{TOP + LINE * i}" xml:space="preserve"{attribute}>'
                   f"{html.escape(text, quote=False)}</text>")
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    text = pathlib.Path(sys.argv[1]).read_text(errors="replace")
    command = sys.argv[2] if len(sys.argv) == 3 else "tools/quickstart"
    sys.stdout.write(svg(selected(text.splitlines(), command)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
