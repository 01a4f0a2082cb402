"""Random numbers as a function of (member's seed, step, stream): nothing to save or to share.

A number is a hash (the finalizer of SplitMix64) of where it is used, so a member draws the same
ones whatever else is in its population, and a resumed run goes on with the same ones. Integers
and uniforms are identical on every device; normals up to the device's cosine and logarithm.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """A 64-bit pattern as the integer that torch calls by it; products wrap around."""
    return value - (1 << 64) if value >= 1 << 63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
FIRST, SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)
UNIT = 2.0**-24  # uniforms have 24 bits, all that a float32 can hold


class Stream(IntEnum):
    """What numbers are for; streams of a member are independent."""

    ACTOR = 0
    CRITIC = 1
    ACTION = 2
    SLOT = 3
    TARGET = 4
    MODULE = 5
    MIX = 6
    NOISE = 7


def _upper(bits: Tensor, count: int) -> Tensor:
    """The upper ``count`` of 64 bits; torch shifts copies of the sign in, which go away."""
    return (bits >> (64 - count)).bitwise_and_((1 << count) - 1)


def _mix(bits: Tensor) -> Tensor:
    """Scramble 64 bits one to one; the argument is used up."""
    bits.bitwise_xor_(_upper(bits, 34)).mul_(FIRST)
    bits.bitwise_xor_(_upper(bits, 37)).mul_(SECOND)
    return bits.bitwise_xor_(_upper(bits, 33))


def random_bits(seeds: Tensor, steps: Tensor, stream: int, shape: tuple[int, ...]) -> Tensor:
    """64 random bits of each member ``(P,)`` and step ``(...)``: ``(..., P, *shape)``."""
    keys = _mix(seeds + _signed((stream + 1) * GOLDEN % (1 << 64)))  # (P,)
    keys = _mix(keys + steps[..., None] * GOLDEN)  # (..., P)
    count = torch.Size(shape).numel()
    places = torch.arange(1, count + 1, device=seeds.device) * GOLDEN
    return _mix(keys[..., None] + places).view(*keys.shape, *shape)


def below(bits: Tensor, size: Tensor | int) -> Tensor:
    """Random integers from 0 to ``size - 1``, of at most 32 bits."""
    return (_upper(bits, 32) * size) >> 32


def as_uniform(bits: Tensor) -> Tensor:
    """Numbers in [0, 1), float32."""
    return _upper(bits, 24).to(torch.float32).mul_(UNIT)


def as_normal(bits: Tensor) -> Tensor:
    """Standard normal numbers, float32, by Box and Muller's transform; none is beyond 5.8."""
    radius = (_upper(bits, 24) + 1).to(torch.float32).mul_(UNIT).log_().mul_(-2.0).sqrt_()
    angle = (bits & 0xFFFFFF).to(torch.float32).mul_(2.0 * torch.pi * UNIT)
    return radius.mul_(angle.cos_())


def uniform(seeds: Tensor, steps: Tensor, stream: int, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in [0, 1), ``(..., P, *shape)`` for steps ``(...)``."""
    return as_uniform(random_bits(seeds, steps, stream, shape))


def normal(seeds: Tensor, steps: Tensor, stream: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers, ``(..., P, *shape)`` for steps ``(...)``."""
    return as_normal(random_bits(seeds, steps, stream, shape))
