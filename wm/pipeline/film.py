"""An evaluation -> films of two of its episodes, which a report shows."""

from typing import Any

from wm.artifacts.runs import Artifact, Builder
from wm.errors import RecipeMismatch
from wm.evaluation.score import open_agent
from wm.pipeline.session import Session
from wm.pipeline.stage import Result, run_stage
from wm.report.agent_film import FILM, choose_episodes, difference, save_films, scored_episodes
from wm.report.filming import film_episodes
from wm.rollouts.players import RandomSpec, evaluation_jobs

# Raised when films of the same evaluation look or play otherwise.
RECIPE = 1
FILM_BYTES = 4_000_000  # that the disk budget must have left before an agent is filmed


def film(session: Session, title: str, evaluation: Artifact) -> Result:
    """Play the test episodes with the median and the worst return again, and keep films of them in the run, which
    messages call `title`. Raises RecipeMismatch if they are not those that were scored."""
    runtime, name = session.runtime, evaluation.folder.name
    returns, max_steps = scored_episodes(evaluation)
    agent = open_agent(session.workspace, name, max_steps)
    if evaluation.inputs != {**agent.inputs, **agent.env.code.sources} or isinstance(agent.spec, RandomSpec):
        raise RecipeMismatch(f"{evaluation.folder} scored another agent than the run has now; run `wm evaluate` again")
    spec, chosen, jobs = agent.spec, choose_episodes(returns), evaluation_jobs(len(returns))

    def work(builder: Builder) -> dict[str, Any]:
        numbers = list(dict.fromkeys(map(str, chosen.values())))  # of two episodes the median is the worst
        name = "episode" if len(numbers) == 1 else "episodes"
        runtime.log(f"film {title}: playing test {name} {' and '.join(numbers)} again ...")
        films = film_episodes(runtime, spec, list(chosen), [jobs[number] for number in chosen.values()])
        for each, number in zip(films, chosen.values(), strict=True):
            if problem := difference(each, returns[number]):
                raise RecipeMismatch(problem)
        save_films(builder.folder, films)
        return {"episodes": list(chosen.values())}

    inputs = {"evaluation": evaluation.fingerprint}
    run = session.make_run(FILM, FILM, RECIPE, {"agent": name}, inputs, seeded=False)
    return run_stage(session, "film", run, (FILM_BYTES, "the film"), lambda artifact: "", work, agent.env)
