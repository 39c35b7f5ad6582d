#!/usr/bin/env python3
"""Draws docs/images/schedules.svg: the passes of each pipeline schedule, with a backward as long as two forwards.

  bench/train/schedule_picture.py docs/images/schedules.svg

The lists of passes are written down here a second time, apart from common/layout/pipeline_schedule.cc. A test compares
both with the same strings.
"""
import collections
import pathlib
import sys

SCHEDULES = ("naive", "gpipe", "1f1b", "zerobubble")
# Below these, the picture has an interleaved schedule, and batches that follow each other (PipeDream).
CHUNKS, BATCHES = 2, 28
SECONDS = {"F": 1, "B": 2}
SPLIT_SECONDS = {"F": 1, "B": 1, "W": 1}
# A forward or backward of a micro-batch; W: the gradients of parameters, where they are apart. chunk: of the model.
Pass = collections.namedtuple("Pass", "kind micro_batch chunk", defaults=(0,))
Span = collections.namedtuple("Span", "kind micro_batch chunk begin end")


def passes(schedule, stages, stage, micro_batches):
    """Returns the passes of a stage, in order."""
    def forward(n):
        return [Pass("F", n)] if n < micro_batches else []
    if schedule == "naive":
        return [Pass(kind, n) for n in range(micro_batches) for kind in "FB"]
    ahead = min(micro_batches, micro_batches if schedule == "gpipe" else stages - stage - 1)
    found = [Pass("F", n) for n in range(ahead)]
    behind = stage if schedule == "zerobubble" else None
    for n in range(micro_batches):
        found += [*forward(n + ahead), Pass("B", n)]
        found += [Pass("W", n - behind)] if behind is not None and n >= behind else []
    done = sum(one.kind == "W" for one in found)
    return found + [Pass("W", n) for n in range(done, micro_batches) if behind is not None]


def interleaved(stages, stage, micro_batches):
    """Returns the passes of a stage with several chunks: each chunk takes as many micro-batches as there are stages."""
    def nth(n, kind):
        chunk = n % (stages * CHUNKS) // stages
        micro_batch = n // (stages * CHUNKS) * stages + n % stages
        return Pass(kind, micro_batch, chunk if kind == "F" else CHUNKS - 1 - chunk)
    count = micro_batches * CHUNKS
    ahead = min(count, (stages - stage - 1) * 2 + (CHUNKS - 1) * stages)
    found = [nth(n, "F") for n in range(ahead)]
    for n in range(count):
        found += [nth(n + ahead, "F")] if n + ahead < count else []
        found.append(nth(n, "B"))
    return found


def seconds_of(schedule):
    if schedule == "interleaved":
        return {kind: seconds / CHUNKS for kind, seconds in SECONDS.items()}
    return SPLIT_SECONDS if schedule == "zerobubble" else SECONDS


def in_flight(schedule, stages, stage, micro_batches):
    """Returns how many micro-batches at most are between forward and backward on a stage."""
    now, peak = 0, 0
    last = "W" if "W" in seconds_of(schedule) else "B"
    for one in passes(schedule, stages, stage, micro_batches):
        now += (one.kind == "F") - (one.kind == last)
        peak = max(peak, now)
    return peak


def play(schedule, stages, micro_batches):
    """Returns the spans of each stage: every pass begins as soon as its stage is free and what it reads is there."""
    seconds = seconds_of(schedule)
    chunks = CHUNKS if schedule == "interleaved" else 1
    of_stage = interleaved if chunks > 1 else lambda *shape: passes(schedule, *shape)
    left = [of_stage(stages, stage, micro_batches) for stage in range(stages)]
    ends, spans = {}, [[] for _ in range(stages)]  # ends: by kind, part of the model and micro-batch
    while any(left):
        for stage, waiting in enumerate(left):
            while waiting:
                kind, n, chunk = waiting[0]
                part = chunk * stages + stage
                before = part - 1 if kind == "F" else part + 1
                needs = [] if before in (-1, stages * chunks) or kind == "W" else [(kind, before, n)]
                if any(need not in ends for need in needs):
                    break
                begin = max([ends[need] for need in needs] + [span.end for span in spans[stage][-1:]] + [0])
                ends[(kind, part, n)] = begin + seconds[kind]
                spans[stage].append(Span(*waiting.pop(0), begin, begin + seconds[kind]))
    return spans


def idle_share(schedule, stages, micro_batches):
    """Returns the part of all stages' time in which they wait."""
    spans = play(schedule, stages, micro_batches)
    total = max(span.end for stage in spans for span in stage)
    busy = sum(span.end - span.begin for stage in spans for span in stage)
    return 1 - busy / (total * stages)


UNIT, ROW, LEFT, TOP, GAP = 8, 20, 62, 30, 34
STAGES, MICRO_BATCHES = 4, 8
COLOURS = {"F": "#74c0fc", "B": "#ffc078", "W": "#ffe8a1"}
DARKER = {"F": "#339af0", "B": "#ff922b"}  # of the second chunk
STYLE = ("text{font:12px sans-serif;fill:#343a40}.number{font-size:9px;text-anchor:middle}.title{font-weight:bold}"
         ".idle{fill:#f1f3f5}")


def panel(title, spans, top):
    """Returns the SVG of one schedule."""
    total = max(span.end for stage in spans for span in stage)
    parts = [f'<text class="title" x="{LEFT}" y="{top - 8}">{title}</text>']
    for stage, found in enumerate(spans):
        y = top + ROW * stage
        parts.append(f'<text x="8" y="{y + 14}">stage {stage}</text>')
        parts.append(f'<rect class="idle" x="{LEFT}" y="{y}" width="{UNIT * total:g}" height="{ROW - 2}"/>')
        for span in found:
            x, width = LEFT + UNIT * span.begin, UNIT * (span.end - span.begin)
            colour = (DARKER if span.chunk else COLOURS)[span.kind]
            parts.append(f'<rect fill="{colour}" x="{x:g}" y="{y}" width="{width - 1:g}" height="{ROW - 2}"/>')
            if width >= UNIT:
                parts.append(f'<text class="number" x="{x + (width - 1) / 2:g}" y="{y + 12}">{span.micro_batch}</text>')
    return parts


def panels():
    """Returns the titles and the spans of all schedules in the picture."""
    found = []
    for schedule in SCHEDULES:
        peaks = [in_flight(schedule, STAGES, stage, MICRO_BATCHES) for stage in range(STAGES)]
        found.append((f"{schedule}: idle {idle_share(schedule, STAGES, MICRO_BATCHES):.0%}, "
                      f"micro-batches in flight by stage: {', '.join(map(str, peaks))}",
                      play(schedule, STAGES, MICRO_BATCHES)))
    found.append((f"interleaved, {CHUNKS} chunks on each stage (the second one is darker): "
                  f"idle {idle_share('interleaved', STAGES, MICRO_BATCHES):.0%}",
                  play("interleaved", STAGES, MICRO_BATCHES)))
    found.append(("pipedream: the numbers are batches, and each backward ends with an update; idle only at the beginning "
                  "and the end", play("1f1b", STAGES, BATCHES)))
    return found


def picture():
    each = TOP + ROW * STAGES
    width = LEFT + UNIT * MICRO_BATCHES * STAGES * sum(SECONDS.values()) + 12
    height = len(panels()) * each + GAP
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
             f"<title>Pipeline schedules: {STAGES} stages, {MICRO_BATCHES} micro-batches</title><style>{STYLE}</style>",
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for place, (title, spans) in enumerate(panels()):
        parts += panel(title, spans, each * place + TOP)
    y = height - 12
    for place, (kind, name) in enumerate((("F", "forward of micro-batch 0, 1, ..."), ("B", "backward"),
                                          ("W", "gradients of parameters"))):
        x = LEFT + 230 * place
        parts.append(f'<rect fill="{COLOURS[kind]}" x="{x}" y="{y - 11}" width="14" height="14"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{name}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit("expected the file for the picture")
    pathlib.Path(sys.argv[1]).write_text(picture())


if __name__ == "__main__":
    main()
