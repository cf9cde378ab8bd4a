"""Outcomes as a text table, as JSON, and as a Markdown table of several servers."""
import json


def as_dict(outcome):
    c = outcome.check
    return {"name": c.name, "section": c.section, "level": c.level, "title": c.title, "result": outcome.result,
            "why": outcome.why, "seconds": round(outcome.seconds, 3)}


def counts(outcomes):
    out = {"checks": len(outcomes), "pass": 0, "skip": 0, "fail_must": 0, "fail_should": 0}
    for o in outcomes:
        out[o.result if o.result != "fail" else f"fail_{o.check.level.lower()}"] += 1
    return out


def word_of(result, level):
    return {"pass": "ok", "skip": "-"}.get(result) or ("FAIL" if level == "MUST" else "should")


def table(outcomes, colour, failed_only=False):
    paint = {"ok": "32", "FAIL": "1;31", "should": "33"}
    shown = [o for o in outcomes if o.result == "fail" or not failed_only]
    width = max((len(o.check.name) for o in shown), default=0)
    lines = []
    for o in shown:
        word = word_of(o.result, o.check.level)
        painted = f"\033[{paint[word]}m{word:6}\033[0m" if colour and word in paint else f"{word:6}"
        lines.append(f"{painted} {o.check.name:{width}}  {o.check.section:20}  {o.check.title}")
        if o.why:
            lines.append(f"       {'':{width}}  {o.why}")
    n = counts(outcomes)
    lines.append(f"{n['checks']} checks: {n['pass']} passed, {n['fail_must']} of MUST and {n['fail_should']} of SHOULD failed, "
                 f"{n['skip']} do not apply")
    return "\n".join(lines)


def write_json(path, address, outcomes):
    with open(path, "w") as f:
        json.dump({"server": address, "counts": counts(outcomes), "checks": [as_dict(o) for o in outcomes]}, f, indent=1)
        f.write("\n")


def compare(columns):
    """columns: (name, a file of write_json). One row for each check, one column for each server."""
    loaded = []
    for name, path in columns:
        with open(path) as f:
            loaded.append((name, {c["name"]: c for c in json.load(f)["checks"]}))
    order = {name: c for _, checks in loaded for name, c in checks.items()}
    lines = ["| check | section | | " + " | ".join(name for name, _ in loaded) + " |", "|---|---|---|" + "---|" * len(loaded)]
    for name, c in order.items():
        cells = []
        for _, checks in loaded:
            found = checks.get(name)
            cells.append("" if not found else {"ok": "yes", "-": "-", "FAIL": "**no**", "should": "no"}[word_of(found["result"], found["level"])])
        title = c["title"].replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{name}` | {c['section']} | {title}{'' if c['level'] == 'MUST' else ' (SHOULD)'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
