"""CMA-ES over C's parameters, resumed by replaying its log of fitness values: no pickle, and exact."""

import hashlib
import warnings

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from wm.errors import BadData
from wm.evolution.whitening import Matrix, unwhiten, whiten
from wm.seeding import generator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pycma warns about optional plotting packages
    import cma

Vector = NDArray[np.float64]


class Search:
    """Ask for candidates, tell their returns (higher is better).

    The search starts from the parameters `start`, in the coordinates of `whitener` if there is one (see whitening.py).
    Then `sigma` is a share of the start's root mean square there, unless the start is zero. `algo` is cma, with the
    full covariance matrix, or sep-cma, with its diagonal. About a sixth of a generation mirrors the worst candidates of
    the previous one (Auger, Brockhoff & Hansen 2011). pycma's own stopping rules are off: a flat generation, in which
    every candidate loses 21 points, is no reason to stop.

    Candidates depend on the arguments, on the calls of `restart`, `continue_candidate_search` and `restart_whitened`,
    and on the returns, and on nothing else. Linear algebra uses one thread: with two its sums round differently, and a
    log could not be replayed.
    """

    def __init__(
        self,
        start: NDArray[np.float32],
        popsize: int,
        sigma: float,
        seed: int,
        algo: str = "cma",
        whitener: Matrix | None = None,
    ) -> None:
        self._popsize, self._seed, self._algo = popsize, seed, algo
        self._threads = ThreadpoolController()
        self._whitener = whitener
        self._parameters = len(start)
        self._start = start.astype(np.float64) if whitener is None else whiten(start, whitener)
        scale = 1.0 if whitener is None or not self._start.any() else float(np.sqrt(np.mean(self._start**2)))
        self._sigma = sigma * scale
        self._strategy = self._new_strategy(self._start, "cma")
        self._paused: list[cma.CMAEvolutionStrategy] = []
        self.generation = 0
        self._candidates: list[Vector] = []

    def _new_strategy(self, start: Vector, seed_name: str) -> cma.CMAEvolutionStrategy:
        # A stream for pycma's own generator, which it takes as a function.
        random = generator(self._seed, seed_name)
        return cma.CMAEvolutionStrategy(
            start,
            self._sigma,
            {
                "popsize": self._popsize,
                "CMA_diagonal": self._algo == "sep-cma",
                "CMA_mirrors": True,
                "CMA_mirrormethod": 2,
                "seed": np.nan,  # leave numpy's global generator alone
                "randn": lambda *shape: random.standard_normal(shape),
                "tolfun": 0,
                "tolfunhist": 0,
                "tolx": 0,
                "tolflatfitness": np.inf,
                "tolstagnation": np.inf,
                # Below -1 pycma prints nothing.
                "verbose": -9,
                "verb_log": 0,
            },
        )

    def restart(self) -> None:
        """Pause this candidate search and start another from the same parameters with another random seed."""
        self._paused.append(self._strategy)
        self._strategy = self._new_strategy(self._start, f"cma, start {len(self._paused)}")

    def continue_candidate_search(self, number: int) -> None:
        """Continue one of the candidate searches, counted from 0 in the order of their starts; drop the others."""
        self._strategy = [*self._paused, self._strategy][number]
        self._paused.clear()

    def restart_whitened(self, whitener: Matrix) -> None:
        """Restart from zero, with the initial step size, in the coordinates of `whitener`."""
        self._whitener = whitener
        self._strategy = self._new_strategy(np.zeros(self._parameters), f"cma, evened out after {self.generation}")

    def _as_parameters(self, candidates: Matrix) -> NDArray[np.float32]:
        with self._threads.limit(limits=1, user_api="blas"):
            plain = candidates if self._whitener is None else unwhiten(candidates, self._whitener)
            return np.array(plain, np.float32)

    def ask(self) -> NDArray[np.float32]:
        """The candidates of this generation, (popsize, parameters)."""
        with self._threads.limit(limits=1, user_api="blas"):
            self._candidates = self._strategy.ask()
        return self._as_parameters(np.array(self._candidates))

    def tell(self, returns: Vector) -> None:
        """Report the candidates' returns. Those that are not finite count as worse than the worst."""
        finite = np.isfinite(returns)
        worst = returns[finite].min() if finite.any() else 0.0
        spread = np.ptp(returns[finite]) if finite.any() else 0.0
        # Worse than the worst, and not the worst: a controller that breaks the environment must not tie with it.
        fitness = np.where(finite, returns, worst - spread - 1)
        with self._threads.limit(limits=1, user_api="blas"):
            self._strategy.tell(self._candidates, list(-fitness))
        self.generation += 1

    @property
    def mean(self) -> NDArray[np.float32]:
        """The mean of the distribution: the parameters that are validated and kept."""
        return self._as_parameters(self._strategy.mean[None])[0]

    @property
    def sigma(self) -> float:
        """The step size."""
        return float(self._strategy.sigma)


def digest(candidates: NDArray[np.float32]) -> str:
    """Identifies a generation's candidates in the log."""
    # 64 bits identify a generation's candidates among the few thousand of a search.
    return hashlib.sha256(candidates.tobytes()).hexdigest()[:16]


def replay(search: Search, candidates_digest: str, returns: list[float]) -> None:
    """Repeat one logged generation. Raises BadData if its candidates differ from those in the log."""
    if digest(search.ask()) != candidates_digest:
        raise BadData(
            f"generation {search.generation} of the fitness log has other candidates than this search (another version "
            "of cma or numpy?); remove the unfinished controller and run the command again."
        )
    search.tell(np.array(returns))
