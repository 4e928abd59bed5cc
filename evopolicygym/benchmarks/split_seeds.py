"""Environment seeds for named splits whose streams cannot meet."""

from hashlib import sha256

from evopolicygym.policy import check_seed

__all__ = ["SPLITS", "split_seeds"]

SPLITS = ("train", "validation", "test")

_DOMAIN = b"evopolicygym/split-seeds/v1\0"
_TAG_BITS = 2  # room for the number of the split
_STREAM_BITS = 61  # with the tag 63 bits: fits the signed 64-bit integers of simulators written in C


def split_seeds(split: str, *, seed: int, count: int) -> list[int]:
    """``count`` different environment seeds of ``split``, a pure function of the arguments.

    The low two bits of each seed are the number of its split, so two splits never share a seed, whatever
    ``seed`` they were asked with. A shorter list is the beginning of a longer one.

    Args:
        split: one of ``SPLITS``.
        seed: unsigned 64-bit.
        count: how many, >= 1.

    Returns:
        Ints in [0, 2**63 - 1].

    Raises:
        ValueError: an unknown split, a seed or a count out of range.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; allowed: {', '.join(SPLITS)}")
    check_seed(seed, "seed")
    if type(count) is not int or count < 1:
        raise ValueError(f"count must be an int >= 1, found {count!r}")
    tag = SPLITS.index(split)
    stream = sha256(_DOMAIN + split.encode() + b"\0" + seed.to_bytes(8, "big"))
    seeds: dict[int, None] = {}  # insertion-ordered set: a repeated draw is passed over
    draw = 0
    while len(seeds) < count:
        hashed = stream.copy()
        hashed.update(draw.to_bytes(8, "big"))
        bits = int.from_bytes(hashed.digest()[:8], "big") >> (64 - _STREAM_BITS)
        seeds[bits << _TAG_BITS | tag] = None
        draw += 1
    return list(seeds)
