"""The scenarios: what is sent, by how many runs, and when. All of it follows from a slot's number.

The schedule is open: slot i is due at a time that was settled before the run, whether or not the
server has answered the slots before it. A pause of the server therefore delays the slots that fall
due in it, and each counts its latency from when it was due.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from loadtest import payloads
from loadtest.payloads import Kind, Shape, Template

if TYPE_CHECKING:
    from collections.abc import Callable

BURST_SECONDS = 10.0
"""One wave: 8 s at half the rate, then 2 s at three times the rate; the mean is the rate."""
WIDE_NAMES = 50_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of load.

    Attributes:
        runs: how many runs share the load; 0 means as many as requests a second.
        connections: of all generators together; real SDKs have one each.
        rate, seconds: what is taken when nobody says otherwise.
        pattern: the streams of consecutive slots.
        templates: bodies made for each stream.
        names: distinct metric names over all of them; 0 means those of one line.
        is_bursty: in waves, see `BURST_SECONDS`.
        is_shifting: no two consecutive requests have the same set of names.
    """

    about: str
    runs: int = 100
    connections: int = 64
    rate: float = 500
    seconds: float = 60
    shape: Shape = field(default_factory=Shape)
    pattern: tuple[Kind, ...] = (Kind.METRICS,)
    templates: int = 16
    names: int = 0
    is_bursty: bool = False
    is_shifting: bool = False


_M, _L, _D = Kind.METRICS, Kind.LOGS, Kind.DATA

SCENARIOS: dict[str, Scenario] = {
    "steady": Scenario("a constant rate of 100 points a request, from 100 runs", rate=2_000),
    "burst": Scenario(
        "the same mean rate in waves: 8 s at a half, 2 s at three times", is_bursty=True
    ),
    "many_runs": Scenario(
        "as many runs as requests a second, one a second each", runs=0, rate=2_000, connections=500
    ),
    "wide": Scenario(
        f"{WIDE_NAMES:,} names in each of 4 runs, 500 a line",
        runs=4,
        rate=100,
        shape=Shape(lines=1, names=500),
        templates=WIDE_NAMES // 500,
        names=WIDE_NAMES,
    ),
    "shifting": Scenario(
        f"200 runs, a set of names in each request that none before had; {WIDE_NAMES:,} in all",
        runs=200,
        is_shifting=True,
    ),
    "mixed": Scenario(
        "metrics, console and histograms, 7 to 2 to 1",
        pattern=(_M, _M, _L, _M, _M, _D, _M, _M, _L, _M),
    ),
    "soak": Scenario("a constant rate for an hour; watch the memory", rate=200, seconds=3_600),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a scenario: all that a generator needs, as JSON from the command to generators.

    Attributes:
        rate: requests a second, of all generators together.
        run_ids: the runs; slot i belongs to run i modulo their number.
        first_second: time of the first rows, in seconds since the epoch.
        generators: processes that share the slots.
        connections: of all generators together.
    """

    scenario: str
    url: str
    key: str
    project: str
    rate: float
    seconds: float
    run_ids: list[int]
    first_second: int
    generators: int = 1
    connections: int = 64

    @property
    def slots(self) -> int:
        """Requests of the whole run."""
        return int(self.rate * self.seconds)

    @property
    def shape(self) -> Shape:
        """Of every body."""
        return SCENARIOS[self.scenario].shape

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Of what `to_json` gave, in another process."""
        return cls(**value)

    def due(self, slot: int) -> float:
        """When a slot is due, in seconds from the start."""
        if not SCENARIOS[self.scenario].is_bursty:
            return slot / self.rate
        wave, within = divmod(slot, round(self.rate * BURST_SECONDS))
        calm = 0.4 * self.rate * BURST_SECONDS
        if within < calm:
            return wave * BURST_SECONDS + within / (0.5 * self.rate)
        return wave * BURST_SECONDS + 0.8 * BURST_SECONDS + (within - calm) / (3 * self.rate)


class Due(NamedTuple):
    """One request, ready to be sent."""

    seconds: float
    kind: Kind
    run: int
    """Its place in the plan's `run_ids`."""
    number: int
    """Within its run, from 1."""
    body: bytes


class Work:
    """The requests of one generator, in the order in which they are due.

    Args:
        index: of this generator; it has the slots whose number leaves this remainder.
    """

    def __init__(self, plan: Plan, index: int = 0) -> None:
        scenario = SCENARIOS[plan.scenario]
        self.plan = plan
        self._slots = iter(range(index, plan.slots, plan.generators))
        self._pattern = scenario.pattern
        self._templates = {kind: _templates(kind, scenario) for kind in set(scenario.pattern)}
        self.headers = [payloads.headers(plan.key, plan.project, run_id) for run_id in plan.run_ids]

    def take(self) -> Due | None:
        """The next request; None when all have been taken."""
        slot = next(self._slots, None)
        if slot is None:
            return None
        number, run = divmod(slot, len(self.plan.run_ids))
        # Not by the slot: a run would get the same stream, and the same templates, all the time.
        kind = self._pattern[(number + run) % len(self._pattern)]
        templates = self._templates[kind]
        template = templates[(number + run) % len(templates)]
        second = self.plan.first_second + number
        body = template.stamped(second, number + 1, slot % WIDE_NAMES)
        return Due(self.plan.due(slot), kind, run, number + 1, body)


def runs_of(scenario: Scenario, rate: float) -> int:
    """How many runs a scenario has at a rate."""
    return scenario.runs or max(1, round(rate))


def _templates(kind: Kind, scenario: Scenario) -> list[Template]:
    make: dict[Kind, Callable[[int], Template]] = {
        Kind.METRICS: lambda seed: payloads.metrics(
            scenario.shape,
            seed,
            seed * scenario.shape.names if scenario.names else 0,
            is_shifting=scenario.is_shifting,
        ),
        Kind.LOGS: lambda seed: payloads.logs(scenario.shape, seed),
        Kind.DATA: lambda seed: payloads.data(scenario.shape, seed),
    }
    return [make[kind](seed) for seed in range(scenario.templates)]
