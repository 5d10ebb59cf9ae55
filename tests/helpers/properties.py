"""What tests of properties share: how hypothesis runs, and the cases that it draws.

A property holds for every case, not only for friendly ones: no example at all, uneven
and prime numbers of them, more devices than examples, devices in any order. The cases
are the same in each run, so a test that fails once fails again.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

settings.register_profile(
    "d2l_gpu",
    derandomize=True,
    database=None,
    deadline=None,  # the machine may be busy with other tests
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("d2l_gpu")

DEVICES = 5


def sizes(least: int = 0, most: int = 23) -> st.SearchStrategy[int]:
    """Numbers of examples, elements or bytes: few, uneven and prime ones among them."""
    return st.integers(least, most)


def orders(most: int = DEVICES) -> st.SearchStrategy[list[int]]:
    """Indices of one or several devices, each another, in any order."""
    return st.permutations(range(most)).flatmap(
        lambda order: st.integers(1, most).map(lambda count: list(order[:count]))
    )
