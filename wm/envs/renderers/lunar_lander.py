"""A faster renderer for LunarLander. Gymnasium draws 600 by 400 pixels at every step and copies them twice.

Exact: the moon and its flags do not change within an episode, so they are drawn and shrunk once. The lander and its
particles are drawn over them with gymnasium's calls. Fast: the same on a canvas of a third of the size, without
antialiasing. Physics, rewards and random numbers are gymnasium's.
"""

from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d import lunar_lander
from pygame import gfxdraw

from wm.envs.renderers.box2d import Polygons
from wm.envs.renderers.canvas import Canvas
from wm.envs.renderers.source_check import require_known_source
from wm.envs.resize import Frame

_DRAWING = (
    lunar_lander.LunarLander.step,
    lunar_lander.LunarLander.render,
    lunar_lander.LunarLander._create_particle,
    lunar_lander.LunarLander._clean_particles,
)
_KNOWN = ("05ee26f78580c4c2",)  # gymnasium 1.4.0
_FLAGS_DRAWN = 3  # gymnasium draws the flags after every shape, and their antialiased edges become opaque


class LunarLanderRenderer:
    """Draws the state of a LunarLander with a render mode. `fast` draws at a third of the size."""

    entry_point = None

    def __init__(self, env: lunar_lander.LunarLander, size: int, fast: bool) -> None:
        require_known_source("LunarLander", _DRAWING, _KNOWN)
        self.env, self.fast = env, fast
        self._shrink = 3 if fast else 1
        self._scale = lunar_lander.SCALE / self._shrink
        self._canvas = Canvas(lunar_lander.VIEWPORT_W // self._shrink, lunar_lander.VIEWPORT_H // self._shrink, size)

    def begin(self) -> None:
        """A new episode has begun, with another moon."""
        self._canvas.set_background(self._draw_moon)
        self._lander = Polygons(self.env.drawlist)

    def frame(self, observation: Any) -> Frame:
        """The frame as (size, size, 3)."""
        canvas, particles = self._canvas, self.env.particles
        self._age_particles()
        canvas.clear()
        corners = self._lander.world_corners(self._lander.poses()).astype(np.float32) * np.float32(self._scale)
        particle_centers = np.array([tuple(particle.position) for particle in particles]).reshape(-1, 2) * self._scale
        points = np.concatenate([corners, particle_centers])
        changed = canvas.mark_changed(points.min(axis=0), points.max(axis=0))
        for particle, center in zip(particles, particle_centers.tolist(), strict=True):
            radius = max(particle.fixtures[0].shape.radius * self._scale, 1)
            pygame.draw.circle(canvas.surface, particle.color2, center, radius)
        outlines = corners.tolist()
        for number, span in self._lander.spans:
            body = self._lander.bodies[number]
            pygame.draw.polygon(canvas.surface, body.color1, outlines[span])
            self._outline(canvas.surface, outlines[span], body.color1)
            if not self.fast:
                pygame.draw.aalines(canvas.surface, body.color2, True, outlines[span])
        if changed.colliderect(self._flags):
            self._draw_flags(canvas.surface)
        return canvas.frame()

    def _age_particles(self) -> None:
        """What gymnasium's render does to the engines' particles besides drawing them."""
        for particle in self.env.particles:
            # Numbers of gymnasium's render: particles fade by 0.15 a frame, and the physics removes those whose time is
            # up.
            particle.ttl -= 0.15
            bright = int(max(0.2, 0.15 + particle.ttl) * 255)
            dim = int(max(0.2, 0.5 * particle.ttl) * 255)
            particle.color1 = particle.color2 = (bright, dim, dim)
        self.env._clean_particles(False)  # type: ignore[no-untyped-call]

    def _draw_moon(self, surface: pygame.Surface) -> None:
        surface.fill((255, 255, 255))
        for sky in self.env.sky_polys:
            points = [(x * self._scale, y * self._scale) for x, y in sky]
            pygame.draw.polygon(surface, (0, 0, 0), points)
            self._outline(surface, points, (0, 0, 0))
        for _ in range(_FLAGS_DRAWN):
            self._draw_flags(surface)

    def _draw_flags(self, surface: pygame.Surface) -> None:
        env, scale, unit = self.env, self._scale, 1 / self._shrink
        bottom = env.helipad_y * scale
        # Pole and flag have gymnasium's 50, 10, 25 and 5 pixels.
        top = bottom + 50 * unit
        left, right = env.helipad_x1 * scale, env.helipad_x2 * scale
        for x in (left, right):
            pygame.draw.line(surface, (255, 255, 255), (x, bottom), (x, top))
            points = [(x, top), (x, top - 10 * unit), (x + 25 * unit, top - 5 * unit)]
            pygame.draw.polygon(surface, (204, 204, 0), points)
            self._outline(surface, points, (204, 204, 0))
        self._flags = pygame.Rect(int(left) - 2, int(bottom) - 2, int(right - left) + 30, int(top - bottom) + 5)

    def _outline(self, surface: pygame.Surface, points: Any, color: tuple[int, int, int]) -> None:
        if not self.fast:
            gfxdraw.aapolygon(surface, points, color)
