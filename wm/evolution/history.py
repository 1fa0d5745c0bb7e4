"""The generations of a search, and what follows from them. It follows from the log's lines alone, so a search that is
resumed by replaying them decides as the interrupted one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.stats import Score

Vector = NDArray[np.float32]
RECENT = 3  # validations that must all be worse than the best before the search counts as exploiting the dream


@dataclass
class History:
    """The lines of the log, and the best parameters by validation. A line has `generation`, `returns` of the
    candidates, `env_steps`, `seconds`, `in` (where candidates played: real or dream), and after a validation its
    returns, `validation`."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    best: Vector | None = None
    best_score: float = -np.inf
    best_generation: int = 0

    def add(self, line: dict[str, Any], parameters: Vector) -> None:
        """Append a line. The parameters are kept if its validation is the best so far."""
        self.lines.append(line)
        if "validation" in line and (score := float(np.mean(line["validation"]))) > self.best_score:
            self.best, self.best_score, self.best_generation = parameters, score, line["generation"]

    @property
    def generation(self) -> int:
        """Number of generations."""
        return int(self.lines[-1]["generation"]) if self.lines else 0

    @property
    def env_steps(self) -> int:
        """Real environment steps."""
        return sum(line["env_steps"] for line in self.lines)

    @property
    def seconds(self) -> float:
        """Time over all sessions of the search."""
        return float(sum(line["seconds"] for line in self.lines))

    @property
    def validated(self) -> list[dict[str, Any]]:
        """The lines with a validation."""
        return [line for line in self.lines if "validation" in line]

    def best_candidate_search(self, ends: range) -> int:
        """The candidate search with the best validation, counted from 0; `ends` are their last generations."""
        scores = {line["generation"]: float(np.mean(line["validation"])) for line in self.validated}
        return int(np.argmax([scores[generation] for generation in ends]))

    def exploited(self, since: int = 0) -> bool:
        """Whether the search exploits the dream: after the best validation, and after generation `since`, each of the
        last three validations is worse on the same episodes, by its interval, while returns in the dream have risen.
        The best may be that of an earlier search, `best_score` without a line."""
        recent = [line for line in self.validated if line["generation"] > max(self.best_generation, since)][-RECENT:]
        if len(recent) < RECENT or self.best_score == -np.inf:
            return False
        best = next((line["validation"] for line in self.validated if line["generation"] == self.best_generation), None)
        returns = self.best_score if best is None else np.array(best)
        losses = [Score.of(np.array(line["validation"]) - returns) for line in recent]
        dream = [(line["generation"], float(np.mean(line["returns"]))) for line in self.lines if line["in"] == "dream"]
        # The mean of a tenth of the generations, because a single one is noisy.
        span = max(len(dream) // 10, 1)
        earlier = [value for generation, value in dream if generation <= self.best_generation][-span:]
        earlier = earlier or [value for _, value in dream[:span]]  # the best is what the search began with
        risen = bool(dream) and np.mean([value for _, value in dream[-span:]]) > np.mean(earlier)
        return bool(all(score.mean + score.ci95 < 0 for score in losses) and risen)
