import numpy as np

from lucid_data import epoch_order
from lucid_data.randomness import Stream, mix64


def test_mixing_is_splitmix64_of_the_weighted_sum():
    mask = (1 << 64) - 1

    def finalise(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    for seed, epoch, index in ((0, 0, 0), (1, 2, 3), (12345, 299, 118286)):
        total = seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + index * 0x94D049BB133111EB
        assert mix64(seed, epoch, index) == finalise(total & mask) >> 1


def test_the_stream_is_the_reference_splitmix64():
    # first outputs for state 1234567 of the public reference implementation
    stream = Stream(1234567)
    assert [stream.bits() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_an_epoch_order_is_a_permutation_that_changes_with_seed_and_epoch():
    orders = [epoch_order(1000, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for order in orders:
        assert sorted(order.tolist()) == list(range(1000))
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert np.array_equal(orders[0], epoch_order(1000, 0, 0))


def test_integers_cover_their_range_evenly():
    stream = Stream(3)
    counts = np.bincount([stream.integer(7) for _ in range(7000)], minlength=7)
    assert len(counts) == 7
    assert counts.min() > 850


def test_an_empty_range_consumes_nothing():
    stream = Stream(9)
    assert stream.uniform(0.0, 0.0) == 0.0
    assert stream.bits() == Stream(9).bits()
