from wm.artifacts.recipe import Recipe, differences


def test_equal_recipes_have_equal_fingerprints_whatever_their_order() -> None:
    one = Recipe("vae", 1, {"a": 1, "b": 2.0}, {"x": "1", "y": "2"})
    two = Recipe("vae", 1, {"b": 2.0, "a": 1}, {"y": "2", "x": "1"})
    assert one.fingerprint == two.fingerprint


def test_anything_that_changes_the_result_changes_the_fingerprint() -> None:
    base = Recipe("vae", 1, {"a": 1}, {"x": "1"})
    others = [Recipe("vae", 2, {"a": 1}, {"x": "1"}), Recipe("vae", 1, {"a": 2}, {"x": "1"}),
              Recipe("vae", 1, {"a": 1}, {"x": "2"}), Recipe("m", 1, {"a": 1}, {"x": "1"})]  # fmt: skip
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_differences_are_told_in_words() -> None:
    old = Recipe("vae", 1, {"latent": 32}, {"episodes": "1"}).as_json()
    new = Recipe("vae", 1, {"latent": 64}, {"episodes": "2"}).as_json()
    assert differences(old, new) == ["latent 32 -> 64", "episodes changed"]


def test_inputs_that_came_or_went_are_told_in_their_order() -> None:
    old = Recipe("vae", 1, {}, {"episodes": "1", "init": "5"}).as_json()
    new = Recipe("vae", 1, {}, {"episodes": "1", "episodes 10": "4", "episodes 2": "2"}).as_json()
    assert differences(old, new) == ["now with episodes 2, 10", "now without init"]


def test_settings_that_mean_nothing_to_another_algorithm_are_no_differences() -> None:
    evolved = {"settings": {"algo": "cma", "in_": "real", "popsize": 16, "whiten_at": "", "seed": 0}}
    trained = {"settings": {"algo": "ppo", "in_": "dream", "units": 128, "seed": 1}}
    assert differences(evolved, trained) == ["algo cma -> ppo", "in real -> dream", "seed 0 -> 1"]
    whitened = {"settings": evolved["settings"] | {"whiten_at": "30,60"}}
    assert differences(evolved, whitened) == ["whiten_at none -> 30,60"]


def test_a_setting_that_came_to_be_later_had_its_default() -> None:
    old, new = Recipe("vae", 1, {}).as_json(), Recipe("vae", 1, {"show": "changes"}).as_json()
    assert differences(old, new) == ["show default -> changes"]
