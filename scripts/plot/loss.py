# How did the loss fall? Draws the curves of one or more runs into an SVG file, with nothing but Python.
"""usage: scripts/plot/loss.py RUN_DIR_OR_METRICS_JSONL... [-o loss.svg] [--log]"""

import argparse
import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 480, 70, 20, 30, 50
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


def read_curves(path):
    """{kind: [(step, loss)]} of one metrics.jsonl: the last record of each (kind, step); a torn last line is ignored."""
    found = {"train": {}, "eval": {}}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if record.get("kind") in found and isinstance(record.get("loss"), (int, float)) and math.isfinite(record["loss"]):
            found[record["kind"]][record["step"]] = record["loss"]
    return {kind: sorted(points.items()) for kind, points in found.items() if points}


def ticks(low, high, count=6):
    """About `count` round numbers that cover [low, high]."""
    span = (high - low) or 1
    raw = span / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Axes:
    """Maps (step, loss) to the picture."""

    def __init__(self, points, log):
        steps, losses = zip(*points)
        self.scale = math.log10 if log else float
        self.low_step, self.high_step = min(steps), max(max(steps), min(steps) + 1)
        margin = 0 if log else 0.05 * (max(losses) - min(losses)) or 0.05
        self.low, self.high = min(losses) - margin, max(losses) + margin
        if log:
            self.high = max(self.high, self.low * 1.01)

    def x(self, step):
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - self.low_step) / (self.high_step - self.low_step)

    def y(self, loss):
        part = (self.scale(loss) - self.scale(self.low)) / (self.scale(self.high) - self.scale(self.low))
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def draw(curves, log):
    """SVG text of [(label, dashed, points)]."""
    axes = Axes([point for _, _, points in curves for point in points], log)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for loss in ticks(axes.low, axes.high):
        y = axes.y(loss)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss:g}</text>')
    for step in ticks(axes.low_step, axes.high_step):
        parts.append(f'<text x="{axes.x(step):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">optimizer step</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 12}">loss, nats per token</text>')
    for number, (label, dashed, points) in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{axes.x(step):.1f},{axes.y(loss):.1f}" for step, loss in points)
        dash = ' stroke-dasharray="6 3"' if dashed else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')
        x, y = WIDTH - RIGHT - 8, TOP + 16 + 18 * number
        parts.append(f'<text x="{x}" y="{y}" text-anchor="end" fill="{colour}">{escape(label)}</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description="Draws the loss curves of runs as SVG.")
    parser.add_argument("runs", nargs="+", type=pathlib.Path, help="run directories or metrics.jsonl files")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("loss.svg"))
    parser.add_argument("--log", action="store_true", help="logarithmic loss axis")
    arguments = parser.parse_args()
    curves = []
    for run in arguments.runs:
        path = run / "metrics.jsonl" if run.is_dir() else run
        if not path.is_file():
            sys.exit(f"error: {path} does not exist; name a run directory or its metrics.jsonl")
        for kind, points in read_curves(path).items():
            label = f"{path.parent.name or path.name} {kind}, last {points[-1][1]:.4f}"
            curves.append((label, kind == "eval", points))
    if not curves:
        sys.exit("error: no train or eval record with a loss in " + ", ".join(map(str, arguments.runs)))
    arguments.output.write_text(draw(curves, arguments.log), encoding="utf-8")
    print(arguments.output)


if __name__ == "__main__":
    main()
