"""What a search has seen: one line per generation, and what follows from them. It follows from the lines alone, so a
search that is resumed by replaying them decides the same."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.stats import Score

Vector = NDArray[np.float32]
RECENT = 3  # validations that must all be worse than the best before the dream is distrusted


@dataclass
class History:
    """The generations so far. A line holds `generation`, `returns` of the candidates, `env_steps`, `seconds`, where the
    candidates played (`in`: real or dream), and sometimes `validation`, the returns of the mean."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    means: list[Vector] = field(default_factory=list)
    best: Vector | None = None
    best_score: float = -np.inf
    best_generation: int = 0

    def add(self, line: dict[str, Any], mean: Vector) -> None:
        """Take a line; `mean` is the distribution's after it."""
        self.lines.append(line)
        self.means.append(mean)
        if "validation" in line and (score := float(np.mean(line["validation"]))) > self.best_score:
            self.best, self.best_score, self.best_generation = mean, score, line["generation"]

    @property
    def generation(self) -> int:
        """How many generations there were."""
        return int(self.lines[-1]["generation"]) if self.lines else 0

    @property
    def env_steps(self) -> int:
        """Real steps played."""
        return sum(line["env_steps"] for line in self.lines)

    @property
    def seconds(self) -> float:
        """Time taken, over all goes."""
        return float(sum(line["seconds"] for line in self.lines))

    @property
    def validated(self) -> list[dict[str, Any]]:
        """The lines with a validation."""
        return [line for line in self.lines if "validation" in line]

    def best_start(self, ends: range) -> int:
        """Which of the starts that ended with these generations was validated best, counted from 0."""
        scores = {line["generation"]: float(np.mean(line["validation"])) for line in self.validated}
        return int(np.argmax([scores[generation] for generation in ends]))

    def exploited(self, since: int = 0) -> bool:
        """Whether candidates have learned to please the dream only: since the best validation, and this generation,
        each of the last three is worse on the same episodes, by its interval, while what candidates return in the
        dream has risen."""
        recent = [line for line in self.validated if line["generation"] > max(self.best_generation, since)][-RECENT:]
        best = next((line for line in self.validated if line["generation"] == self.best_generation), None)
        if best is None or len(recent) < RECENT:
            return False
        worse = [Score.of(np.array(line["validation"]) - np.array(best["validation"])) for line in recent]
        dreamt = [(line["generation"], float(np.mean(line["returns"]))) for line in self.lines if line["in"] == "dream"]
        span = max(len(dreamt) // 10, 1)
        before = [value for generation, value in dreamt if generation <= self.best_generation][-span:]
        risen = bool(before) and np.mean([value for _, value in dreamt[-span:]]) > np.mean(before)
        return bool(all(score.mean + score.ci95 < 0 for score in worse) and risen)

    def spaced_means(self, count: int) -> tuple[list[int], NDArray[np.float32]]:
        """Equally spaced generations, at most `count`, and the means after them, (N, parameters)."""
        chosen = np.unique(np.linspace(0, len(self.means) - 1, count).round().astype(int))
        return [self.lines[place]["generation"] for place in chosen], np.stack([self.means[place] for place in chosen])
