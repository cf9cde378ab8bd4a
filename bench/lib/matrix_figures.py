"""The figures of a matrix: from the raw results of its runs to rows of tables. Ratios are of the same round.

Pure. A run is the object "matrix" of a raw result. `matrix` is the content of matrix.json.
"""
import dataclasses, statistics

import quiet

# Key of a run, head of the column, format.
COLUMNS = (("per_minute", "messages/min", "{:,.0f}"), ("ratio", "to {base}", "{:.2f}"), ("p50_ms", "p50, ms", "{:.1f}"), ("p99_ms", "p99, ms", "{:.1f}"),
           ("flushes", "flushes/message", "{:.3f}"), ("cpu_server", "CPU, µs/message: server", "{:,.0f}"), ("cpu_a", "primary", "{:,.0f}"), ("cpu_b", "secondary", "{:,.0f}"))


@dataclasses.dataclass
class Cell:
    text: str
    value: float | str | None = None  # to sort by; None: last
    is_marked: bool = False


@dataclasses.dataclass
class Table:
    name: str
    heads: list
    rows: list  # lists of Cell


def spread(values):
    """Median, least and most. None: no values."""
    values = [v for v in values if v is not None]
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)} if values else None


def shown(found, pattern):
    """A spread in words."""
    if not found:
        return ""
    low, middle, high = (pattern.format(found[key]) for key in ("min", "median", "max"))
    return middle if found["runs"] == 1 else f"{middle} ({low} to {high})"


class Figures:
    """runs: row -> round -> run."""

    def __init__(self, matrix, runs):
        self.matrix, self.runs = matrix, runs
        self.rows = {row["name"]: row for row in matrix["rows"]}
        self.usually = quiet.usual([run["noise"] for found in runs.values() for run in found.values() if "noise" in run])
        self.results = {name: self._result(name) for name in self.rows}

    def good(self, name):
        """The rounds of a row that have figures."""
        return {number: run for number, run in sorted(self.runs.get(name, {}).items()) if "per_minute" in run}

    def _result(self, name):
        found = self.good(name)
        values = {key: [run.get(key) for run in found.values()] for key in ("per_minute", "p50_ms", "p99_ms", "flushes", "offered_per_minute")}
        values |= {f"cpu_{who}": [run["cpu_us"].get(who) for run in found.values()] for who in ("server", "a", "b")}
        base = self.good(self.rows[name].get("base") or "")
        values["ratio"] = [run["per_minute"] / base[number]["per_minute"] for number, run in found.items() if number in base and base[number]["per_minute"]]
        told = self.runs.get(name, {})
        return {key: spread(v) for key, v in values.items()} | {
            "rounds": len(found), "messages": sum(run["found"] for run in found.values()),
            "not_quiet": {number: words for number, run in found.items() if (words := quiet.marks(run["noise"], self.usually))},
            "failed": {number: run["failed"] for number, run in told.items() if "failed" in run},
            "skipped": next((run["skipped"] for run in told.values() if "skipped" in run), None)}

    def never_quiet(self):
        return [name for name, r in self.results.items() if r["rounds"] and len(r["not_quiet"]) == r["rounds"]]

    def failed(self):
        """In words. The report and the exit code have them."""
        return [f"{name}, round {number}: {words}" for name, r in self.results.items() for number, words in r["failed"].items()]

    def skipped(self):
        return {name: r["skipped"] for name, r in self.results.items() if r["skipped"]}

    def median_round(self, name):
        """The round whose rate is the median, or the lower one of two. None: the row has no figures."""
        found = sorted((run["per_minute"], number) for number, run in self.good(name).items())
        return found[(len(found) - 1) // 2][1] if found else None

    def table(self, group):
        """Columns without a figure are left out."""
        rows = [name for name, row in self.rows.items() if row["group"] == group["name"]]
        has_base = {self.rows[name].get("base") for name in rows}
        columns = [(key, head.format(base=f"{group['base']}" if group["base"] else ""), pattern) for key, head, pattern in COLUMNS
                   if any(self.results[name][key] for name in rows)]
        if any(self.results[name]["offered_per_minute"] for name in rows):
            columns.insert(0, ("offered_per_minute", "offered/min", "{:,.0f}"))
        if len(has_base) > 1:
            columns = [(key, f"to {group['base']}, same clients" if key == "ratio" else head, pattern) for key, head, pattern in columns]
        table = Table(group["name"], ["row", *(head for _, head, _ in columns), "quiet runs"], [])
        for name in rows:
            r = self.results[name]
            cells = [Cell(shown(r[key], pattern), r[key] and r[key]["median"]) for key, _, pattern in columns]
            table.rows.append([Cell(name, name), *cells, self._quiet(r)])
        return table

    @staticmethod
    def _quiet(result):
        if not result["rounds"]:
            return Cell("skipped" if result["skipped"] else "failed" if result["failed"] else "not run")
        quiet_runs = result["rounds"] - len(result["not_quiet"])
        is_marked = quiet_runs < result["rounds"] or bool(result["failed"])
        words = f"{quiet_runs} of {result['rounds']}" + (f", {len(result['failed'])} failed" if result["failed"] else "")
        return Cell(words + (" (!)" if is_marked else ""), quiet_runs / result["rounds"], is_marked)
