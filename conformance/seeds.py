"""Random numbers that depend on a case's id and nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

from conformance.spec import Case


def generator(case: Case, name: str) -> np.random.Generator:
    """The random generator of one array: seeded by SHA-256 of the case's id and the array's name."""
    return np.random.default_rng(int.from_bytes(_digest(case, name)[:8], "little"))


def seed_of(case: Case, draw: int) -> int:
    """The seed, below 2³¹, of what a subject itself draws at random in its ``draw``-th answer to a case."""
    return int.from_bytes(_digest(case, f"draw {draw}")[:4], "little") >> 1


def _digest(case: Case, name: str) -> bytes:
    return hashlib.sha256(f"{case.id}#{name}".encode()).digest()
