"""Independent random streams from one seed."""

import hashlib

import torch


def stream(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator for one purpose, such as `"loss"` or `"inputs"`.

    Two purposes must never share a stream: weights and inputs drawn from the same numbers would be correlated. The
    pair is hashed to 32 bits because torch's CPU generator ignores the higher bits of its seed.
    """
    digest = hashlib.blake2s(f"{seed}/{purpose}".encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))
