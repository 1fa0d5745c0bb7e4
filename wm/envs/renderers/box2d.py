"""Polygons of Box2D bodies in world coordinates, all in one step. Box2D's Python objects take 1 us per corner."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Polygons:
    """The polygons of several bodies, in the order of their fixtures.

    `spans` has (number of the body, slice of corners) for each polygon, `owners` the body of each corner.
    """

    def __init__(self, bodies: Sequence[Any]) -> None:
        self.bodies = list(bodies)
        self.spans: list[tuple[int, slice]] = []
        corners: list[tuple[float, float]] = []
        for number, body in enumerate(self.bodies):
            for fixture in body.fixtures:
                first = len(corners)
                corners += [tuple(vertex) for vertex in fixture.shape.vertices]
                self.spans.append((number, slice(first, len(corners))))
        # float32 as in Box2D: rounding decides pixels at edges.
        self.corners = np.array(corners, np.float32)
        self.owners = np.repeat([number for number, _ in self.spans], [s.stop - s.start for _, s in self.spans])

    def poses(self) -> NDArray[np.float32]:
        """(bodies, 4): cosine, sine, x, y."""
        return np.array([(t.q.c, t.q.s, *t.position) for t in (body.transform for body in self.bodies)], np.float32)

    def world_corners(self, poses: NDArray[np.float32]) -> NDArray[np.float64]:
        """(corners, 2) in world coordinates."""
        return transformed(self.corners, poses[self.owners])


def transformed(corners: NDArray[np.float32], poses: NDArray[np.float32]) -> NDArray[np.float64]:
    """Corners, each by its body's pose. In single precision like Box2D, so that the same pixels are drawn."""
    c, s, x, y = poses.T
    u, v = corners.T
    return np.stack([(c * u - s * v) + x, (s * u + c * v) + y], axis=1).astype(np.float64)
