"""The report of a matrix: matrix.json, matrix.md, matrix.html and SVG files, from the raw results in a directory."""
import dataclasses, json

import matrix_page, matrix_plots, matrix_rows, sync_trace
from figures import table as markdown_table
from matrix_figures import Figures

MARKS = "Marked (!): a run beside which others used the machine, or which failed."
RATIOS = "*to ...* are ratios of the same round."


def save(out, matrix, begun, runner):
    """What the report needs besides the raw results. begun: settings, machine and versions."""
    rows = []
    for group in matrix.groups:
        for row in matrix.of(group):
            base = matrix_rows.base_of(group, row, matrix.of(group))
            rows.append({key: getattr(row, key) for key in ("name", "family", "group", "server", "generator", "clients", "share", "text", "label")} | {"base": base and base.name})
    content = begun | {"groups": [dataclasses.asdict(group) for group in matrix.groups], "rows": rows, "traces": runner.traces, "configurations": runner.configurations}
    _write_json(out / "matrix.json", content)


def write(out):
    """Makes the report of a directory, from its matrix.json and its raw results. Returns what failed, in words."""
    matrix = json.loads((out / "matrix.json").read_text())
    figures = Figures(matrix, _read_runs(out / "raw"))
    charts = {group["name"]: matrix_plots.draw(figures, group, out / "raw", out) for group in matrix["groups"]}
    _write_json(out / "matrix.json", matrix | {"usually": figures.usually, "results": figures.results})
    (out / "matrix.md").write_text(markdown(figures, charts))
    pictures = {file: (out / file).read_text() for found in charts.values() for _, file in found}
    (out / "matrix.html").write_text(matrix_page.page(figures, charts, pictures, problems(figures), facts(figures)))
    return figures.failed()


def _write_json(path, content):
    path.write_text(json.dumps(content, indent=1) + "\n")


def _read_runs(raw):
    found = {}
    for file in sorted(raw.glob("*.json")):
        run = json.loads(file.read_text())["matrix"]
        found.setdefault(run["row"], {})[run["round"]] = run
    return found


def facts(figures):
    """Pairs of a name and a text: what was measured, and on what."""
    m = figures.matrix
    s = m["settings"]
    messages = sum(r["messages"] for r in figures.results.values())
    return [("command", s["command"]), ("begun", f"{s['begun']}, took {s['minutes']:g} minutes"),
            ("runs", f"{s['rounds']} {'round' if s['rounds'] == 1 else 'rounds'} of {s['seconds']:g} s after {s['warmup']:g} s, in alternation within a group: median (least to most)"),
            ("messages", f"{messages:,} acknowledged ones, warm-up included, to {s['users']} new users in each run of mailbench. All messages of mailbench were there, whole, and once. "
                         "Those of other generators were counted"),
            ("spools", f"{s['size']} each; journals {s['journal']}, arenas {s['arena']}"), *m["machine"].items(),
            ("versions", "; ".join(f"{name}: {text}" for name, text in m["versions"].items())),
            ("medians before the runs", f"a synced write of 4 KiB in {figures.usually['probe_ms']:.2f} ms; {figures.usually['speed_us']:.1f} µs of CPU "
                                        "for a message to the null server")]


def problems(figures):
    """What a reader must know first, a line each."""
    lines = [f"Failed: {words.splitlines()[0]}" for words in figures.failed()]
    if never := figures.never_quiet():
        lines.append(f"No run was quiet, so do not rely on these rows: {', '.join(never)}")
    by_words = {}
    for name, words in figures.skipped().items():
        by_words.setdefault(words, []).append(name)
    return lines + [f"Skipped: {', '.join(names)}: {words}" for words, names in by_words.items()]


def markdown(figures, charts):
    m = figures.matrix
    parts = ["# Matrix", *[f"- {line}." for line in problems(figures)], "", *[f"- {name}: {text}." for name, text in facts(figures)], "", f"{RATIOS} {MARKS}"]
    for group in m["groups"]:
        table = figures.table(group)
        parts += ["", f"## {group['title']}", "", *([group["text"], ""] if group["text"] else []),
                  markdown_table(table.heads, [[cell.text for cell in row] for row in table.rows]), ""]
        parts += [f"![{title}]({file})" for title, file in charts[group["name"]]]
        parts += ["", *[f"- {row['name']}: {row['text']}." for row in figures.rows.values() if row["group"] == group["name"]]]
        parts += _not_quiet(figures, group)
    if m["traces"]:
        parts += ["", "## Syncs of a message", "", sync_trace.NOTE, "", markdown_table(sync_trace.HEADS, [t["cells"] for t in m["traces"]]), "", sync_trace.COMMITTED, ""]
    for title, files in m["configurations"].items():
        parts += ["", f"### Configuration of {title}"] + [f"\n`{file}`:\n\n```\n{text.strip()}\n```" for file, text in files.items()]
    return "\n".join(parts) + "\n"


def _not_quiet(figures, group):
    lines = [f"- {name}, round {number}: {'; '.join(words)}." for name, row in figures.rows.items() if row["group"] == group["name"]
             for number, words in figures.results[name]["not_quiet"].items()]
    return ["", "Not quiet:", "", *lines] if lines else []
