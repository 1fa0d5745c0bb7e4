from pathlib import Path

from wm.pipeline.plan import Plan


def test_a_plan_reads_as_a_sentence() -> None:
    plan = Plan("collect", Path("data"), "50 episodes", 3_000_000, 10**9, (10, 20))
    assert str(plan) == "collect -> data: 50 episodes; disk about 3.0 MB, memory about 1.0 GB, time about 10 s to 20 s"
