"""Time-outs grow with the slowness of the machine, also when it becomes slower during a wait, and never without end."""

from __future__ import annotations

from tests.timeouts import MAX_SLOWNESS, Deadline, SlownessGauge, measure_slowness


class Machine:
    """A clock and a slowness that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slowness = 1.0
        self.measured = 0

    def clock(self) -> float:
        return self.now

    def measure(self) -> float:
        self.measured += 1
        return self.slowness

    def gauge(self) -> SlownessGauge:
        return SlownessGauge(self.clock, self.measure)


def test_a_machine_faster_than_the_nominal_one_shortens_no_time_out():
    machine = Machine()
    machine.slowness = 0.2

    assert machine.gauge().slowness() == 1.0


def test_a_measurement_is_used_for_five_seconds_and_then_taken_again():
    machine = Machine()
    gauge = machine.gauge()
    first = gauge.slowness()
    machine.slowness = 4.0
    second = gauge.slowness()
    machine.now += 5
    third = gauge.slowness()

    assert (first, second, third, machine.measured) == (1.0, 1.0, 4.0, 2)


def test_a_deadline_measures_again_before_it_is_over():
    machine = Machine()
    deadline = Deadline(10, machine.gauge(), machine.clock)

    machine.now += 9
    assert not deadline.is_over
    machine.slowness = 3.0
    machine.now += 2
    assert not deadline.is_over, "the machine is slower now than it was at the start"
    machine.now += 20
    assert deadline.is_over


def test_a_deadline_ends_on_a_machine_that_stands_still():
    machine = Machine()
    machine.slowness = 1e9
    deadline = Deadline(10, machine.gauge(), machine.clock)

    machine.now += 10 * MAX_SLOWNESS

    assert deadline.is_over


def test_the_measurement_itself_is_quick():
    assert 0 < measure_slowness() < 10 * MAX_SLOWNESS
