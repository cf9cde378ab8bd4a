"""A line chart as SVG, for the documentation."""
import html, math, pathlib

COLORS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7a5195", "#b8860b", "#555555")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 380, 64, 16, 44, 46


def ticks(low, high, wanted=6):
    """Round numbers from low to high."""
    step = 1
    while (high - low) / step > wanted:
        step *= 2.5 if str(step)[0] == "2" else 2
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Chart:
    """Lines over the same horizontal axis. The vertical axis begins at 0."""

    def __init__(self, title, x_name, y_name):
        self.title, self.x_name, self.y_name = title, x_name, y_name
        self.lines, self.marks = [], []

    def line(self, name, points):
        """points: pairs of x and y."""
        self.lines.append((name, list(points)))

    def mark(self, x, text):
        """A vertical line, with a text at its right."""
        self.marks.append((x, text))

    def svg(self):
        xs = [x for _, points in self.lines for x, _ in points]
        ys = [y for _, points in self.lines for _, y in points]
        low, high, top = min(xs), max(xs), max(max(ys), 1e-9) * 1.08
        at_x = lambda x: LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        at_y = lambda y: HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
               f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
               f'<text x="{LEFT}" y="18" font-size="14">{html.escape(self.title)}</text>']
        for y in ticks(0, top):
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{LEFT - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
        for x in ticks(low, high, 10):
            out.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
        for x, text in self.marks:
            out.append(f'<line x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="3 3"/>')
            out.append(f'<text x="{at_x(x) + 3:.1f}" y="{TOP + 10}" fill="#666">{html.escape(text)}</text>')
        for (name, points), color in zip(self.lines, COLORS):
            path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        at = LEFT
        for (name, _), color in zip(self.lines, COLORS):
            out.append(f'<rect x="{at}" y="26" width="10" height="10" fill="{color}"/><text x="{at + 14}" y="35">{html.escape(name)}</text>')
            at += 30 + 7 * len(name)
        out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(self.x_name)}</text>')
        out.append(f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">{html.escape(self.y_name)}</text>')
        return "\n".join(out + ["</svg>", ""])

    def write(self, path):
        pathlib.Path(path).write_text(self.svg())
