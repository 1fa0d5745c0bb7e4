"""What the stages of several environments need together."""

import re
from pathlib import Path

from stages import console
from wm.pipeline.estimate import Estimate
from wm.pipeline.plan import Plan


def test_what_keep_removes_makes_room_for_the_next_environment() -> None:
    def plans(env: str) -> list[Plan]:
        collected = Plan("collect", Path(env), "", 600, 1, (1, 1))
        return [collected, Plan("train-mdnrnn", Path(env), "", 100, 1, (1, 1), scratch=50, latents=80)]

    every = {env: plans(env) for env in ("a", "b", "c")}
    disk = {keep: Estimate(every, {}, None, keep).disk for keep in ("all", "data", "artifacts")}
    assert disk == {"all": 2150, "data": 1990, "artifacts": 790}


def test_the_stages_of_a_later_round_carry_its_number() -> None:
    stages = ("collect", "train-vae", "evaluate", "collect", "evaluate", "collect")
    plans = {"a": [Plan(stage, Path("a"), "", 1, 1, (1, 1)) for stage in stages]}
    lines = [
        re.split(r" {2,}", line)
        for line in Estimate(plans, {}, None, "all").text(console.table, console.wrap).splitlines()[2:7]
    ]
    assert [(line[1], line[2]) for line in lines] == [  # alike plans are one
        ("collect", "1 B"), ("train-vae", "1 B"), ("evaluate", "1 B"), ("collect, rounds 2 to 3", "2 B"),
        ("evaluate, round 2", "1 B"),
    ]  # fmt: skip


def test_rounds_on_both_sides_of_another_one_have_a_row_each() -> None:
    plans = [Plan(stage, Path("a"), what, 1, 1, (1, 1)) for what in ("first", "short", "short", "long", "short")
             for stage in ("collect", "train-mdnrnn")]  # fmt: skip
    table = Estimate({"a": plans}, {}, None, "all").text(console.table, console.wrap)
    assert re.findall(r"train-mdnrnn(?:, rounds? [0-9to ]*[0-9])?", table) == [
        "train-mdnrnn", "train-mdnrnn, rounds 2 to 3", "train-mdnrnn, round 4", "train-mdnrnn, round 5",
    ]  # fmt: skip


def test_environments_in_parallel_need_more_memory_and_less_time() -> None:
    def plans(env: str, size: int, least: int, most: int) -> list[Plan]:
        collected = Plan("collect", Path(env), "", 100 * size, 10 * size, (least, most))
        return [collected, Plan("train-vae", Path(env), "", size, size, (1, 1), scratch=size)]

    every = {"a": plans("a", 1, 4, 9), "b": plans("b", 2, 1, 30), "c": plans("c", 3, 2, 4)}
    alone, parallel = (Estimate(every, {}, None, "artifacts", jobs) for jobs in (1, 2))
    assert (alone.memory, parallel.memory) == (30, 50)
    assert (alone.seconds, parallel.seconds) == ((10, 46), (5, 36))
    assert (alone.disk, parallel.disk) == (303 + 1 + 2 + 3, 303 + 202 + 1 + 3 + 2)
    assert (alone.longest_first(), parallel.longest_first()) == (["a", "b", "c"], ["a", "c", "b"])


def test_training_whose_steps_are_set_counts_by_its_most_time() -> None:
    def plans(env: str, seconds: tuple[int, int], fixed_work: bool) -> list[Plan]:
        return [Plan("train-controller", Path(env), "", 1, 1, seconds, fixed_work=fixed_work)]

    every = {"a": plans("a", (4, 90), fixed_work=False), "b": plans("b", (1, 9), fixed_work=True)}
    assert Estimate(every, {}, None, jobs=2).longest_first() == ["b", "a"]
