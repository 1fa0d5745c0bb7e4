"""`wm collect`: an environment and a policy -> episodes."""

from stages.session import Session
from wm.episodes.archive import find_dataset
from wm.episodes.size_estimate import estimate_size
from wm.pipeline.collect import collect, describe_collection
from wm.pipeline.plan import Plan
from wm.pipeline.stage import UP_TO_DATE
from wm.rollouts.collection import play_sample
from wm.settings import CollectSettings

__all__ = ["collect", "plan"]

PROCESS_MEMORY = 120_000_000  # bytes of a process that plays, or writes


def plan(session: Session, settings: CollectSettings) -> Plan:
    """What `collect` would do. Plays a few episodes to estimate their size and duration."""
    collection, recipe = describe_collection(session, settings)
    path = session.data_path
    dataset = find_dataset(path, recipe)
    missing = len(dataset.absent(settings.episodes)) if dataset else settings.episodes
    if dataset and not missing:
        summary = f"{UP_TO_DATE} with {settings.episodes} episodes"
        return Plan("collect", path, summary, 0, 0, (0, 0), dataset.first(settings.episodes).rows)
    runtime = session.runtime
    sample = play_sample(collection, missing, runtime)
    rows = sample.mean_rows * missing
    seconds = rows / sample.rows_per_second
    return Plan(
        "collect",
        path,
        f"{missing} episodes to play, {dataset.episodes if dataset else 0} collected",
        estimate_size(recipe, sample.episodes, missing).bytes,
        PROCESS_MEMORY * (1 + max(runtime.workers, 1)),
        (seconds, seconds),
        round(rows) + (dataset.rows if dataset else 0),
    )
