"""The random generators as they were, to be put back."""

from collections.abc import Iterable

import torch


class RandomState:
    """The state of the host's generator, of every device's, and of the generators given."""

    def __init__(self, generators: Iterable[torch.Generator] = ()) -> None:
        self._host = torch.get_rng_state()
        # devices that were never used have no state to lose, and asking would initialise them
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        self._generators = [(g, g.get_state()) for g in generators]

    def restore(self) -> None:
        """Put every state back."""
        torch.set_rng_state(self._host)
        if self._devices is not None:
            torch.cuda.set_rng_state_all(self._devices)
        for generator, state in self._generators:
            generator.set_state(state)
