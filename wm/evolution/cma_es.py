"""CMA-ES over C's parameters, resumed by replaying its log of fitness values: no pickle, and exact."""

import hashlib
import warnings

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from wm.errors import BadData
from wm.evolution.whitening import Matrix, coordinates_of, weights_of
from wm.seeding import generator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pycma mentions optional plotting packages
    import cma

Vector = NDArray[np.float64]


class Search:
    """Ask for candidates, tell their returns (higher is better). Starts from the vector `start`, in the coordinates of
    `basis` if there is one (see whitening.py): `sigma` is then a share of the start's root mean square there, unless
    the start is zero.

    The candidates depend on (start, popsize, sigma, seed, algo), on the bases it was evened out with, on when it
    started again and what it went on with, and on the returns told so far, and on nothing else: linear algebra gets one
    thread, because its sums round otherwise with two, and a log could not be replayed.
    `algo` is cma, with the full covariance matrix, or sep-cma, with its diagonal. About a sixth of a generation are
    mirror images of the worst of the one before (Auger, Brockhoff & Hansen 2011). pycma's own stopping rules are off: a
    flat generation (every candidate loses 21 points) is no reason to stop.
    """

    def __init__(
        self,
        start: NDArray[np.float32],
        popsize: int,
        sigma: float,
        seed: int,
        algo: str = "cma",
        basis: Matrix | None = None,
    ) -> None:
        self._popsize, self._seed, self._algo = popsize, seed, algo
        self._threads = ThreadpoolController()
        self._basis = basis
        self._parameters = len(start)
        place = start.astype(np.float64) if basis is None else coordinates_of(start, basis)
        share = 1.0 if basis is None or not place.any() else float(np.sqrt(np.mean(place**2)))
        self._sigma = sigma * share
        self._strategy = self._begin(place, "cma")
        self._place = place
        self._rivals: list[cma.CMAEvolutionStrategy] = []
        self.generation = 0
        self._asked: list[Vector] = []

    def _begin(self, start: Vector, name: str) -> cma.CMAEvolutionStrategy:
        random = generator(self._seed, name)
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
                "verbose": -9,
                "verb_log": 0,
            },
        )

    def restart(self) -> None:
        """Begin another search where this one began, with chance of its own; those before wait."""
        self._rivals.append(self._strategy)
        self._strategy = self._begin(self._place, f"cma, start {len(self._rivals)}")

    def continue_candidate_search(self, start: int) -> None:
        """Go on with one of the searches there are, counted from 0 in the order of their starts; drop the others."""
        self._strategy = [*self._rivals, self._strategy][start]
        self._rivals.clear()

    def whiten(self, basis: Matrix) -> None:
        """Begin anew, from zero and with the first step size, in the coordinates of `basis` (see whitening.py)."""
        self._basis = basis
        outputs = self._parameters // len(basis)
        self._strategy = self._begin(np.zeros(outputs * basis.shape[1]), f"cma, evened out after {self.generation}")

    def _as_parameters(self, candidates: Matrix) -> NDArray[np.float32]:
        with self._threads.limit(limits=1, user_api="blas"):
            return np.array(candidates if self._basis is None else weights_of(candidates, self._basis), np.float32)

    def ask(self) -> NDArray[np.float32]:
        """The candidates of this generation, (popsize, parameters)."""
        with self._threads.limit(limits=1, user_api="blas"):
            self._asked = self._strategy.ask()
        return self._as_parameters(np.array(self._asked))

    def tell(self, returns: Vector) -> None:
        """Report the candidates' returns. What is not finite counts as worse than the worst."""
        finite = np.isfinite(returns)
        worst = returns[finite].min() if finite.any() else 0.0
        spread = np.ptp(returns[finite]) if finite.any() else 0.0
        fitness = np.where(finite, returns, worst - spread - 1)
        with self._threads.limit(limits=1, user_api="blas"):
            self._strategy.tell(self._asked, list(-fitness))
        self.generation += 1

    @property
    def mean(self) -> NDArray[np.float32]:
        """The mean of the distribution: the policy that is validated and kept."""
        return self._as_parameters(self._strategy.mean[None])[0]

    @property
    def sigma(self) -> float:
        """The step size."""
        return float(self._strategy.sigma)


def digest(candidates: NDArray[np.float32]) -> str:
    """Names a generation's candidates in the log."""
    return hashlib.sha256(candidates.tobytes()).hexdigest()[:16]


def replay(search: Search, candidates_digest: str, returns: list[float]) -> None:
    """Repeat one logged generation. Raises BadData if the candidates are not those that were played."""
    if digest(search.ask()) != candidates_digest:
        raise BadData(
            f"generation {search.generation} of the fitness log belongs to other candidates (another cma or numpy "
            "version?); remove the unfinished controller to start over."
        )
    search.tell(np.array(returns))
