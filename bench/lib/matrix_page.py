"""The report of a matrix as one HTML page that needs no other file: tables that a click sorts, and the charts. Pure."""
import html, re

import sync_trace
from matrix_figures import Cell, Table

# Nothing may come from elsewhere. A browser reports an attempt as an error.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #fff; --soft: #5b6875; --line: #d8dee5; --band: #f3f6f9; --mark: #b34700; --accent: #0063a6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --paper: #14191f; --soft: #9aa7b4; --line: #323c47; --band: #1c232b; --mark: #ffab66; --accent: #7cc4f5; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; margin: .2rem 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
p, li { max-width: 48rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
a { color: var(--accent); }
.problems { border-left: 4px solid var(--mark); padding: .3rem .3rem .3rem 1rem; background: var(--band); }
.problems li { color: var(--mark); overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
.figures td { white-space: nowrap; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
.figures td:first-child { position: sticky; left: 0; background: var(--paper); font-weight: 600; }
tbody tr:hover td { background: var(--band); }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--accent); }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
td small { display: block; color: var(--soft); font-size: .75rem; }
.marked { color: var(--mark); }
figure { margin: 1.2rem 0; max-width: 54rem; }
figure svg { width: 100%; height: auto; display: block; fill: var(--ink); }
figure svg > rect:first-of-type { fill: var(--paper); }
figure line[stroke="#222"] { stroke: var(--ink); }
figure line[stroke="#e2e2e2"] { stroke: var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { overflow-x: auto; background: var(--band); padding: .6rem; font-size: .8rem; }
summary { cursor: pointer; }
@media (max-width: 40rem) {
  body { padding: .6rem; font-size: 15px; }
  dl { grid-template-columns: 1fr; }
  dd { margin-bottom: .4rem; }
  figure { overflow-x: auto; }
  figure svg { min-width: 34rem; }
}
"""
# The fragment #sort=TABLE:COLUMN sorts downwards, and #sort=TABLE:-COLUMN upwards. Columns count from 0.
SCRIPT = """
"use strict";
const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
const valueOf = (row, column) => {
  const text = row.cells[column].dataset.value;
  return text === "" ? null : Number.isNaN(Number(text)) ? text : Number(text);
};
function sortBy(table, column, isUp) {
  const rows = [...table.tBodies[0].rows];
  rows.sort((first, second) => {
    const a = valueOf(first, column), b = valueOf(second, column);
    if (a === null || b === null) return (a === null) - (b === null);
    return isUp ? compare(a, b) : compare(b, a);
  });
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
}
function sortByFragment() {
  const found = /^#sort=([^:]+):(-?)(\\d+)$/.exec(decodeURIComponent(location.hash));
  const table = found && document.getElementById("table-" + found[1]);
  if (table && Number(found[3]) < table.tHead.rows[0].cells.length) {
    sortBy(table, Number(found[3]), found[2] === "-");
    table.scrollIntoView();
  }
}
document.querySelectorAll("table.figures").forEach((table) => {
  [...table.tHead.rows[0].cells].forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const isUp = head.getAttribute("aria-sort") === "descending";
    sortBy(table, column, isUp);
    history.replaceState(null, "", "#sort=" + table.dataset.name + ":" + (isUp ? "-" : "") + column);
  }));
});
addEventListener("hashchange", sortByFragment);
sortByFragment();
"""

escaped = html.escape


def page(figures, charts, pictures, problems, facts):
    """charts: group -> pairs of a title and a file. pictures: file -> SVG. problems: lines. facts: pairs."""
    m = figures.matrix
    groups = m["groups"]
    links = [(group["name"], group["title"]) for group in groups] + ([("syncs", "Syncs of a message")] if m["traces"] else [])
    parts = ["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">', f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
             '<meta name="viewport" content="width=device-width, initial-scale=1">', '<link rel="icon" href="data:,">', "<title>Matrix</title>", f"<style>{STYLE}</style></head><body>",
             "<h1>Messages per minute: the matrix</h1>", *_problems(problems), _facts(facts),
             "<p>A click on a head sorts its table. <em>to ...</em> are ratios of the same round. The small figures are the least and the most. "
             '<span class="marked">(!)</span> marks runs beside which others used the machine, or which failed.</p>',
             "<nav>" + " ".join(f'<a href="#{escaped(name)}">{escaped(title)}</a>' for name, title in links) + "</nav>"]
    for group in groups:
        parts += _group(figures, group, charts[group["name"]], pictures)
    parts += _traces(m["traces"]) + _configurations(m["configurations"]) + [f"<script>{SCRIPT}</script>", "</body></html>", ""]
    return "\n".join(parts)


def _problems(lines):
    return ['<ul class="problems">', *[f"<li>{escaped(line)}</li>" for line in lines], "</ul>"] if lines else []


def _facts(pairs):
    return "<dl>" + "".join(f"<dt>{escaped(name)}</dt><dd>{_code(text)}</dd>" for name, text in pairs) + "</dl>"


def _group(figures, group, charts, pictures):
    rows = [row for row in figures.rows.values() if row["group"] == group["name"]]
    noise = [(f"{row['name']}, round {number}", "; ".join(words)) for row in rows for number, words in figures.results[row["name"]]["not_quiet"].items()]
    count = sum(figures.results[row["name"]]["rounds"] for row in rows)
    parts = [f'<section id="{escaped(group["name"])}">', f"<h2>{escaped(group['title'])}</h2>", *([f"<p>{escaped(group['text'])}</p>"] if group["text"] else []),
             _table(figures.table(group), {row["name"]: row["text"] for row in rows})]
    parts += [f'<figure data-chart="{escaped(file)}">{inline(pictures[file])}</figure>' for _, file in charts]
    parts.append(f"<details><summary>The rows</summary>{_facts([(row['name'], row['text']) for row in rows])}</details>")
    if noise:
        parts.append(f'<details><summary class="marked">Not quiet: {len(noise)} of {count} runs</summary>{_facts(noise)}</details>')
    return parts + ["</section>"]


def inline(svg):
    """A picture as a part of the page, which needs no name space."""
    return re.sub(r'\sxmlns="[^"]*"', "", svg[svg.index("<svg"):], count=1)


def _table(table: Table, titles):
    heads = "".join(f'<th scope="col"><button type="button">{escaped(head)}</button></th>' for head in table.heads)
    rows = "".join(f'<tr title="{escaped(titles[row[0].text])}">' + "".join(map(_cell, row)) + "</tr>\n" for row in table.rows)
    name = escaped(table.name)
    return f'<div class="scroll"><table class="figures" id="table-{name}" data-name="{name}"><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>'


def _cell(cell: Cell):
    """The spread is below the median."""
    middle, _, rest = cell.text.partition(" (")
    text = escaped(middle) + (f"<small>({escaped(rest)}</small>" if rest and " to " in rest else escaped(f" ({rest}") if rest else "")
    return f'<td data-value="{"" if cell.value is None else escaped(str(cell.value))}"{" class=marked" if cell.is_marked else ""}>{text}</td>'


def _traces(traces):
    if not traces:
        return []
    heads = "".join(f"<th>{_code(head)}</th>" for head in sync_trace.HEADS)
    rows = "".join("<tr>" + "".join(f"<td>{_code(cell)}</td>" for cell in trace["cells"]) + "</tr>" for trace in traces)
    calls = [(trace["cells"][0].replace("`", ""), "; ".join(f"{n:g} {call}" for call, n in trace["calls"].items())) for trace in traces]
    return ['<section id="syncs"><h2>Syncs of a message</h2>', f"<p>{_code(sync_trace.NOTE)} {_code(sync_trace.COMMITTED)}</p>",
            f'<div class="scroll"><table class="words"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>',
            f"<details><summary>The calls for a message</summary>{_facts(calls)}</details>", "</section>"]


def _code(text):
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped(text))


def _configurations(configurations):
    parts = ["<section id=\"configurations\"><h2>Configurations</h2>"]
    for title, files in configurations.items():
        texts = "".join(f"<p><code>{escaped(file)}</code></p><pre>{escaped(text.strip())}</pre>" for file, text in files.items())
        parts.append(f"<details><summary>{_code(title)}</summary>{texts}</details>")
    return parts + ["</section>"]
