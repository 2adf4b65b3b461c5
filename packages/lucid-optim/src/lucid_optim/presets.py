"""Coefficients of Newton-Schulz iterations, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Quintic = tuple[float, float, float]


@dataclass(frozen=True)
class Preset:
    """The odd quintics ``a x + b x^3 + c x^5`` of an iteration, one row (a, b, c) per step.

    The last row serves every later step. Singular values end inside ``range`` after five steps when they
    start between 0.05 and 1.
    """

    rows: tuple[Quintic, ...]
    range: tuple[float, float]
    source: str

    def steps(self, count: int) -> list[Quintic]:
        """Return the rows of ``count`` steps.

        >>> [row[0] for row in PRESETS["quintic"].steps(2)]
        [3.4445, 3.4445]
        """
        return [self.rows[min(step, len(self.rows) - 1)] for step in range(count)]


def _cushioned(rows: tuple[Quintic, ...], margin: float) -> tuple[Quintic, ...]:
    """Return ``rows`` for arguments that may exceed 1 by the factor ``margin``, the last one as it is."""
    inner = ((a / margin, b / margin**3, c / margin**5) for a, b, c in rows[:-1])
    return (*inner, rows[-1])


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "quintic": Preset(
            rows=((3.4445, -4.7750, 2.0315),),
            range=(0.68, 1.14),
            source="Jordan et al., Muon, 2024; the coefficients of the MuSGD paper",
        ),
        # minimax quintics from [1e-3, 1], whose minima stay above a tenth of the maxima, then the classic one;
        # the margin of 1.01 keeps rounded arguments inside
        "polar_express": Preset(
            rows=_cushioned(
                (
                    (8.28721201814563, -23.595886519098837, 17.300387312530933),
                    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
                    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
                    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
                    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
                    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
                    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
                    (1.875, -1.25, 0.375),
                ),
                1.01,
            ),
            range=(0.87, 1.13),
            source="Amsel et al., The Polar Express, arXiv:2505.16932, Algorithm 1",
        ),
        # the Taylor form: slow from below, but 1 is its fixed point
        "classic": Preset(
            rows=((1.875, -1.25, 0.375),),
            range=(0.85, 1.0),
            source="Higham, Functions of Matrices, 2008, section 8.3: the Newton-Schulz family, order five",
        ),
    }
)
