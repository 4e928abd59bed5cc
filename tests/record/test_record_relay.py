"""An observer can neither slow nor stop what it observes."""

import threading

import pytest

from evopolicygym.record import ObserverRelay, RunEvent, relay


def event(number: int) -> RunEvent:
    return RunEvent("notice", number, number, {"message": str(number)})


def tell(relayed: ObserverRelay, count: int) -> None:
    for number in range(count):
        relayed.on_event(event(number))


def tell_all(relayed: ObserverRelay) -> None:
    tell(relayed, 100)
    relayed.close()


class Watcher:
    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.told: list[int] = []

    def on_event(self, event: RunEvent) -> None:
        if self.gate is not None:
            self.gate.wait(30)
        self.told.append(event.time_unix_ns)


def test_everything_is_told_in_order_before_the_end() -> None:
    watcher = Watcher()
    relayed = ObserverRelay(watcher)
    for number in range(5000):
        relayed.on_event(event(number))
    relayed.close()
    assert watcher.told == list(range(5000))


def test_an_observer_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CLOSE_SECONDS", 0.2)
    gate = threading.Event()
    relayed = ObserverRelay(Watcher(gate))
    for number in range(1000):
        relayed.on_event(event(number))  # returns, although the first is not taken yet
    with pytest.warns(RuntimeWarning, match="has not kept up"):
        relayed.close()
    gate.set()


def test_one_that_falls_too_far_behind_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_UNTOLD", 10)
    gate = threading.Event()
    watcher = Watcher(gate)
    relayed = ObserverRelay(watcher)
    with pytest.warns(RuntimeWarning, match="10 events behind"):
        tell(relayed, 100)
    gate.set()
    relayed.close()
    assert len(watcher.told) <= 1


def test_one_that_raises_is_told_nothing_more() -> None:
    class Broken:
        calls = 0

        def on_event(self, event: RunEvent) -> None:
            self.calls += 1
            raise ValueError("broken")

    broken = Broken()
    relayed = ObserverRelay(broken)
    with pytest.warns(RuntimeWarning, match=r"Broken raised ValueError at 'notice' \(broken\)"):
        tell_all(relayed)
    assert broken.calls == 1
