"""bfloat16 against torch, packing, and the checks of a received trunk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

from protocol import trunk
from protocol.errors import TrunkError
from protocol.trunk import TrunkLayout

LAYOUT = TrunkLayout((("0.weight", (3, 2)), ("0.bias", (3,))))


def torch_bits(vector: np.ndarray) -> np.ndarray:
    """What torch, the reference, makes of it."""
    return torch.from_numpy(vector.copy()).to(torch.bfloat16).view(torch.uint16).numpy()


def assert_rounds_like_torch(bits: np.ndarray) -> None:
    vector = bits.astype(np.uint32).view(np.float32)
    found, expected = trunk.to_bfloat16(vector), torch_bits(vector)
    numbers = ~np.isnan(vector)
    np.testing.assert_array_equal(found[numbers], expected[numbers])
    # Which NaN torch gives depends on its vector unit; any will do, as long as it stays one.
    assert np.isnan(trunk.from_bfloat16(found[~numbers])).all()


@pytest.mark.parametrize(
    "low",
    [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF],
    ids=["exact", "just above", "just below a tie", "tie", "just above a tie", "just below next"],
)
def test_all_high_halves_round_like_torch(low: int) -> None:
    """All 65,536 bfloat16 values as float32, and all halfway points: subnormal, infinite, NaN."""
    high = np.arange(2**16, dtype=np.uint32) << 16
    assert_rounds_like_torch(high | np.uint32(low))


def test_random_floats_round_like_torch() -> None:
    rng = np.random.default_rng(7)
    assert_rounds_like_torch(rng.integers(0, 2**32, 1_000_000, dtype=np.uint64))


def test_every_bfloat16_widens_like_torch_and_comes_back() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    wide = trunk.from_bfloat16(bits)
    reference = torch.from_numpy(bits.copy()).view(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(wide.view(np.uint32), reference.view(np.uint32))
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(trunk.to_bfloat16(wide)[numbers], bits[numbers])
    assert np.isnan(trunk.from_bfloat16(trunk.to_bfloat16(wide)))[~numbers].all()


@given(hnp.arrays(np.float32, st.just(LAYOUT.size), elements=st.floats(width=32, allow_nan=False)))
def test_packing_survives_the_round_trip(vector: np.ndarray) -> None:
    exact = trunk.unpack(trunk.pack(vector, "float32"), LAYOUT, "float32")
    np.testing.assert_array_equal(exact, vector)
    payload = trunk.pack(vector, "bfloat16")
    rounded = trunk.unpack(payload, LAYOUT, "bfloat16")
    assert exact.dtype == rounded.dtype == np.float32
    assert exact.flags.writeable and rounded.flags.writeable
    # Rounding twice changes nothing more: both sides of an exchange hold the same numbers.
    assert trunk.pack(rounded, "bfloat16") == payload


def test_the_wire_is_little_endian() -> None:
    one = np.array([1.0], dtype=np.float32)
    assert trunk.pack(one, "float32") == b"\x00\x00\x80\x3f"
    assert trunk.pack(one, "bfloat16") == b"\x80\x3f"


def test_a_strided_vector_packs_its_values_in_order() -> None:
    vector = np.arange(6, dtype=np.float32)[::2]
    assert trunk.pack(vector, "float32") == np.array([0, 2, 4], dtype="<f4").tobytes()
    assert trunk.pack(vector, "bfloat16") == trunk.pack(vector.copy(), "bfloat16")


@pytest.mark.parametrize(("dtype", "right"), [("float32", 36), ("bfloat16", 18)])
@pytest.mark.parametrize("off_by", [-18, -1, 1, 18])
def test_a_wrong_length_is_refused(dtype: trunk.WireDtype, right: int, off_by: int) -> None:
    assert LAYOUT.payload_bytes(dtype) == right
    with pytest.raises(TrunkError) as caught:
        trunk.unpack(bytes(right + off_by), LAYOUT, dtype)
    assert caught.value.reason == "trunk-length"
    assert caught.value.detail == f"found {right + off_by} bytes, allowed: {right}"


def test_the_layout_digest_tells_names_shapes_and_order_apart() -> None:
    others = [
        TrunkLayout((("0.weight", (2, 3)), ("0.bias", (3,)))),
        TrunkLayout((("0.weight", (3, 2)), ("1.bias", (3,)))),
        TrunkLayout((("0.bias", (3,)), ("0.weight", (3, 2)))),
        TrunkLayout((("0.weight", (3, 2)),)),
    ]
    assert LAYOUT.size == 9
    assert len({layout.digest for layout in [LAYOUT, *others]}) == 5
    assert TrunkLayout(LAYOUT.tensors).digest == LAYOUT.digest


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_number_that_is_not_finite_is_refused(poison: float, dtype: trunk.WireDtype) -> None:
    vector = np.ones(LAYOUT.size, dtype=np.float32)
    vector[4] = poison
    received = trunk.unpack(trunk.pack(vector, dtype), LAYOUT, dtype)
    with pytest.raises(TrunkError) as caught:
        trunk.check(received, own_norm=3.0, max_ratio=10.0)
    assert caught.value.reason == "trunk-not-finite"
    assert "1 of 9 parameters" in caught.value.detail


@pytest.mark.parametrize("value", [1.0, 8.0, 0.125, -8.0])
def test_a_norm_within_the_ratio_passes(value: float) -> None:
    trunk.check(np.full(4, value, dtype=np.float32), own_norm=2.0, max_ratio=8.0)


@pytest.mark.parametrize("value", [8.01, 0.1249, 0.0, -100.0])
def test_an_absurd_norm_is_refused(value: float) -> None:
    with pytest.raises(TrunkError) as caught:
        trunk.check(np.full(4, value, dtype=np.float32), own_norm=2.0, max_ratio=8.0)
    assert caught.value.reason == "trunk-norm"
    assert "allowed: 0.25 to 16 (8 times the own trunk's, either way)" in caught.value.detail


def test_a_huge_trunk_has_a_norm_and_is_refused_by_it() -> None:
    vector = np.full(100, 3e38, dtype=np.float32)
    assert trunk.norm(vector) == pytest.approx(3e39)
    with pytest.raises(TrunkError, match="trunk-norm"):
        trunk.check(vector, own_norm=1.0, max_ratio=10.0)


def test_digest_is_of_the_bytes() -> None:
    payload = trunk.pack(np.ones(3, dtype=np.float32), "bfloat16")
    assert trunk.digest(payload) == trunk.digest(memoryview(payload))
    assert trunk.digest(payload) != trunk.digest(payload[::-1])


def test_a_norm_is_the_same_with_any_number_of_threads() -> None:
    """A replay feeds the same trunks to another process, and compares to the last bit."""
    for seed in range(5):
        vector = np.random.default_rng(seed).normal(size=30_000).astype(np.float32)
        found = set()
        for threads in (1, 2, 4):
            with threadpool_limits(threads):
                found.add(trunk.norm(vector))
        assert len(found) == 1
        assert found.pop() == pytest.approx(float(np.linalg.norm(vector.astype(np.float64))))
