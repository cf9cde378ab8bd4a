"""The charts of a matrix, drawn by mailbench plot."""
import json, tempfile, pathlib

from twinloft import BIN, run

TITLES = {"bars": "messages a minute", "latency": "latency, median runs", "seconds": "messages a minute by second, median runs",
          "clients": "messages a minute", "rate": "p50 and p99"}
NEEDED = {"latency": "latency_distribution", "seconds": "seconds"}
LINES = 7  # as many colors has a chart


def draw(figures, group, raw, out):
    """Writes the charts of a group. Returns pairs of a title and a file."""
    charts = []
    for kind in group["plots"]:
        parts = parts_of(figures, group, kind, raw)
        for number, inputs in enumerate(parts, 1):
            name = f"{group['name']}-{kind}{f'-{number}' if len(parts) > 1 else ''}.svg"
            title = f"{group['title']}: {TITLES[kind]}"
            _plot(kind, title, inputs, out / name)
            charts.append((title, name))
    return charts


def parts_of(figures, group, kind, raw):
    """Lists of pairs of a label and a report, a list for each chart."""
    rows = [row for row in figures.rows.values() if row["group"] == group["name"] and figures.good(row["name"])]
    reports = lambda row: [(number, _report(raw, row["name"], number, found["per_minute"])) for number, found in figures.good(row["name"]).items()]
    if kind == "bars":
        return _whole([(_label(row, row["name"]), report) for row in rows for _, report in reports(row)])
    if kind == "clients":
        return _whole([(_label(row), report) for row in rows for _, report in reports(row)])
    if kind == "rate":
        return _whole([(_label(row), report) for row in rows if row["share"] for _, report in reports(row)])
    lines = [(_label(row, row["name"]), dict(reports(row))[figures.median_round(row["name"])]) for row in rows]
    lines = [(label, report) for label, report in lines if report.get(NEEDED[kind]) and report["settings"].get("protocol") != "smtp"]
    return [lines[at:at + LINES] for at in range(0, len(lines), LINES)]


def _label(row, name=None):
    """name: what tells rows of one family apart, where a chart does not put them on one line."""
    family = row.get("label") or row["family"]
    return family if name in (None, row["family"]) else name


def _whole(inputs):
    return [inputs] if inputs else []


def _report(raw, name, number, per_minute):
    """With the rate that counts, which is that of delivery for an MTA."""
    return json.loads((raw / f"{name}-{number}.json").read_text()) | {"messages_per_minute": per_minute}


def _plot(kind, title, inputs, file):
    with tempfile.TemporaryDirectory() as directory:
        words = []
        for number, (label, report) in enumerate(inputs):
            path = pathlib.Path(directory) / f"{number}.json"
            path.write_text(json.dumps(report))
            words.append(f"{label}={path}")
        run(BIN / "mailbench", "plot", "--kind", kind, "--title", title, "-o", file, *words)
