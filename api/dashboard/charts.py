"""Geometry of the dashboard's charts: data in, coordinates and labels out; the templates draw them as
SVG. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from storage.replica_chart import ReplicaCounts

WIDTH, HEIGHT = 760.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 10.0, 12.0, 26.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Area:
    """One filled shape: `kind` picks its colour in the style sheet."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class StepChart:
    """Replicas over time: stacked areas, with the axes' ticks."""

    areas: tuple[Area, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    peak: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of one stack. `series` numbers its colour; `title` is read out and shown on hover."""

    x: float
    y: float
    width: float
    height: float
    series: int
    title: str


@dataclass(frozen=True, slots=True)
class BarChart:
    bars: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    series: tuple[str, ...]


def step_chart(points: Sequence[ReplicaCounts], since: float, until: float) -> StepChart:
    """Stack ready, draining and starting replicas as steps over [since, until)."""
    layers = {
        "ready": [p.ready for p in points],
        "draining": [p.draining for p in points],
        "starting": [p.starting for p in points],
    }
    peak = max((p.ready + p.draining + p.starting for p in points), default=0)
    top = max(peak, 1)
    floor = [0] * len(points)
    areas = []
    for kind, values in layers.items():
        roof = [low + value for low, value in zip(floor, values, strict=True)]
        if any(values):
            areas.append(Area(kind, _step_path(points, floor, roof, since, until, top)))
        floor = roof
    return StepChart(tuple(areas), _time_ticks(since, until), tuple(_count_ticks(top)), peak)


def bar_chart(
    days: Sequence[str], amounts: Mapping[tuple[str, str], int], describe: Mapping[tuple[str, str], str]
) -> BarChart:
    """Stack `amounts` by (day, series), days from left to right; the biggest series lies at the bottom.

    `describe` gives each bar's title.
    """
    totals: dict[str, int] = {}
    for (_, series), amount in amounts.items():
        totals[series] = totals.get(series, 0) + amount
    series_names = tuple(sorted(totals, key=lambda name: (-totals[name], name)))
    top = max((sum(amounts.get((day, s), 0) for s in series_names) for day in days), default=0) or 1
    slot = (WIDTH - LEFT - RIGHT) / max(len(days), 1)
    width = min(slot * 0.7, 48.0)
    bars = []
    for number, day in enumerate(days):
        base = HEIGHT - BOTTOM
        for index, series in enumerate(series_names):
            amount = amounts.get((day, series), 0)
            height = (HEIGHT - TOP - BOTTOM) * amount / top
            if amount:
                base -= height
                x = LEFT + slot * number + (slot - width) / 2
                bars.append(Bar(x, base, width, max(height, 0.75), index % 6, describe[day, series]))
    step = max(1, ceil(len(days) / 8))
    x_ticks = tuple(
        Tick(LEFT + slot * (number + 0.5), day[5:]) for number, day in enumerate(days) if number % step == 0
    )
    return BarChart(tuple(bars), x_ticks, _money_ticks(top), series_names)


def _step_path(
    points: Sequence[ReplicaCounts],
    floor: Sequence[int],
    roof: Sequence[int],
    since: float,
    until: float,
    top: int,
) -> str:
    """There along the roof, back along the floor."""
    ends = [*(p.at for p in points[1:]), until]
    there, back = [], []
    for point, end, low, high in zip(points, ends, floor, roof, strict=True):
        x0, x1 = _x(point.at, since, until), _x(end, since, until)
        there += [(x0, _y(high, top)), (x1, _y(high, top))]
        back += [(x0, _y(low, top)), (x1, _y(low, top))]
    corners = [*there, *reversed(back)]
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in corners) + "Z"


def _x(at: float, since: float, until: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at - since) / (until - since)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _time_ticks(since: float, until: float) -> tuple[Tick, ...]:
    """About six round instants, UTC."""
    steps = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
    step = next((s for s in steps if (until - since) / s <= 7), steps[-1])
    form = "%H:%M" if step < 86_400 else "%m-%d"
    first = ceil(since / step) * step
    instants = range(int(first), int(until), step)
    return tuple(Tick(_x(t, since, until), datetime.fromtimestamp(t, UTC).strftime(form)) for t in instants)


def _count_ticks(top: int) -> list[Tick]:
    step = max(1, ceil(top / 4))
    return [Tick(_y(value, top), str(value)) for value in range(0, top + 1, step)]


def _money_ticks(top_nano_usd: int) -> tuple[Tick, ...]:
    """Two to four round amounts that fit under the highest stack."""
    rough = top_nano_usd / 3
    power = 10 ** (len(str(int(max(rough, 1)))) - 1)
    step = next(
        int(power * factor) for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough or factor == 10
    )
    amounts = range(0, top_nano_usd + 1, max(step, 1))
    return tuple(Tick(_y(amount, top_nano_usd), _axis_usd(amount)) for amount in amounts)


def _axis_usd(nano_usd: int) -> str:
    """`0`, `$0.25`, `$12`, `$0.00005`: as short as it is exact enough for an axis."""
    if nano_usd == 0:
        return "0"
    text = f"{nano_usd / 1e9:.9f}".rstrip("0").rstrip(".")
    return f"${text}"
