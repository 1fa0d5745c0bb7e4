"""The control panel: every setting of every command, declared once. Options, presets and docs derive from it.

A setting is a field of a frozen dataclass with a sentence and a bound. `flag=True` gives it an option of its own;
every setting can be given by `--set name=value`, a preset or a config file. `result=False` marks what cannot change
the result and is left out of fingerprints; `added=True` one that came later, whose default does what was done before
it and is left out too, so that what people have stays up to date. This module imports nothing heavy: `wm --help` reads
it.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wm.errors import UsageProblem

T = TypeVar("T")
CURRICULA = {
    "full": ("Pong", "LunarLander", "Breakout", "CarRacing"),
    "classic": ("Pong", "Breakout", "CartPole", "Acrobot"),
}


def setting(
    default: T,
    sentence: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    flag: bool = False,
    result: bool = True,
    added: bool = False,
    off: str = "",
) -> T:
    """Declare a setting: its default, a sentence for the help, its bounds, and whether it has a flag (`off` names the
    one that turns it off, if not `--no-...`)."""
    metadata = {
        "sentence": sentence,
        "low": low,
        "high": high,
        "choices": choices,
        "flag": flag,
        "result": result,
        "added": added,
        "off": off,
    }
    declared: T = field(default=default, metadata=metadata)
    return declared


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all groups: checks every bound at construction."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check(item, getattr(self, item.name))

    def result_settings(self) -> dict[str, Any]:
        """The settings that enter a fingerprint, as given."""
        values = {item: getattr(self, item.name) for item in dataclasses.fields(self) if item.metadata["result"]}
        return {
            item.name: value for item, value in values.items() if not (item.metadata["added"] and value == item.default)
        }


def option_name(item: "dataclasses.Field[Any]") -> str:
    """`max_steps` -> `--max-steps`."""
    return "--" + item.name.rstrip("_").replace("_", "-")


def check(item: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise UsageProblem, by the name it is given with, if `value` is outside the declared bounds or choices."""
    low, high, choices = item.metadata["low"], item.metadata["high"], item.metadata["choices"]
    name = option_name(item) if item.metadata["flag"] else f"--set {item.name.rstrip('_')}"
    if choices is not None and value not in choices:
        raise UsageProblem(f"{name} is {value!r}; expected one of {', '.join(map(str, choices))}.")
    if low is not None and not value >= low:
        raise UsageProblem(f"{name} is {value}; expected at least {low:g}.")
    if high is not None and not value <= high:
        raise UsageProblem(f"{name} is {value}; expected at most {high:g}.")


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Settings):
    """`wm collect`: which episodes are played and how they are stored."""

    episodes: int = setting(50, "How many episodes the dataset should hold.", low=1, flag=True, result=False)
    size: int = setting(64, "Side of the stored square frames in pixels.", low=32, high=128, flag=True)
    gray: bool = setting(False, "Store one gray channel instead of three colours.", flag=True)
    policy: str = setting(
        "auto",
        "Who plays: auto is sticky for discrete actions, brownian for continuous ones.",
        choices=("auto", "random", "sticky", "brownian", "controller"),
        flag=True,
    )
    actions: str = setting(
        "auto",
        "Action space, where the environment offers both.",
        choices=("auto", "discrete", "continuous"),
        flag=True,
    )
    render: str = setting(
        "exact",
        "Who draws: exact is gymnasium's pixels drawn faster, fast is coarser, gymnasium is its own code.",
        choices=("exact", "fast", "gymnasium"),
        flag=True,
    )
    show: str = setting(
        "picture",
        "What a frame shows: the picture; the changes since the episode's first; moving, what differs from a "
        "background that follows slowly; or motion, the changes in gray now, 4 and 8 steps ago as its channels.",
        choices=("picture", "changes", "moving", "motion"),
        flag=True,
        added=True,
    )
    action_repeat: int = setting(
        1,
        "Environment steps that each action is held for; V, M and C see the last one, and all steps are counted in "
        "actions from here on.",
        low=1,
        high=16,
        flag=True,
        added=True,
    )
    max_steps: int = setting(0, "Truncate episodes after this many steps; 0: the environment's own limit.", low=0)


@dataclass(frozen=True, kw_only=True)
class GradientSettings(Settings):
    """What the training of V and of M have in common."""

    steps: int = setting(4000, "Training steps.", low=1, flag=True)
    batch: int = setting(32, "Frames or windows per batch.", low=1, flag=True)
    shares: str = setting(
        "", "With several --data, the share of each in a batch, such as 0.3,0.7; empty: by their steps.", flag=True
    )
    accumulate: int = setting(1, "Batches whose gradients are averaged into one step.", low=1, flag=True)
    precision: str = setting(
        "auto",
        "Number format of matrix products: auto is bf16 where the device has instructions for it, else fp32.",
        choices=("auto", "fp32", "bf16", "fp16"),
        flag=True,
    )
    tf32: bool = setting(True, "On CUDA, let float32 products use TF32.", flag=True, result=False)
    compile: bool = setting(False, "Compile the loss with torch.compile.", flag=True, result=False)
    learning_rate: float = setting(1e-3, "Adam's step size at the start of a cosine decay.", low=1e-8, high=1.0)
    clip: float = setting(1.0, "Largest gradient norm.", low=1e-6)
    from_: str = setting(
        "", "Run whose weights to go on from, such as runs/Pong; empty: from scratch.", flag=True, result=False
    )
    matching: bool = setting(
        False, "With --from, take the weights whose shapes match, instead of refusing others.", added=True
    )
    validate_every: int = setting(500, "Steps between validations; each also writes a checkpoint.", low=1)
    patience: int = setting(10, "End after this many validations without a better one; 0: never.", low=0)
    held_out: float = setting(0.1, "Share of the episodes held out for validation.", low=0.01, high=0.5)


@dataclass(frozen=True, kw_only=True)
class VaeSettings(GradientSettings):
    """`wm train-vae`: the VAE and its loss."""

    vae: str = setting(
        "small",
        "The network: small takes less than a third of the paper's time per image, attentive also sees how small "
        "things are turned.",
        choices=("small", "attentive", "paper"),
        flag=True,
    )
    episodes: int = setting(0, "Train on the first N episodes; 0: all.", low=0, flag=True, result=False)
    latent: int = setting(32, "Number of latent dimensions.", low=1, high=1024, flag=True)
    steps: int = setting(6000, "Training steps.", low=1, flag=True)
    batch: int = setting(64, "Frames per batch.", low=1, flag=True)
    pixels: float = setting(
        3000.0,
        "Nats that always showing the mean picture would cost; 0: the plain summed squared error, as in the paper.",
        low=0,
    )
    rarity: float = setting(
        0.5, "How much more rare colours at a place weigh (an exponent); 0: all alike, as in the paper.", low=0, high=2
    )
    moments: float = setting(
        100.0, "Nats that each moment costs that z does not tell linearly; 0: none, as in the paper.", low=0
    )
    orientations: int = setting(
        0,
        "Cosines per axis of the moments that tell how things are turned, beside those that tell where; 0: none.",
        low=0,
        high=4,
        added=True,
    )
    basis: str = setting(
        "cosines",
        "What moments weigh places by: cosines, or polynomials, which need fewer where one thing moves before nothing.",
        choices=("cosines", "polynomials"),
        added=True,
    )
    clip: float = setting(20.0, "Largest gradient norm, of the loss in units of `pixels`.", low=1e-6)
    kl_tolerance: float = setting(0.5, "Free nats per latent dimension before the KL term counts.", low=0.0)
    ram: str = setting(
        "auto", "Memory for decoded frames, such as 2GB; auto: a quarter of what is free.", flag=True, result=False
    )
    require_probe: float = setting(
        0.0,
        "Refuse a V from whose sampled z a linear probe reads a label worse than this R2; 0: only warn below 0.9.",
        low=0,
        high=1,
        flag=True,
        result=False,
    )


@dataclass(frozen=True, kw_only=True)
class MdnRnnSettings(GradientSettings):
    """`wm train-mdnrnn`: LSTM with a mixture density head, and heads for reward and end of episode."""

    hidden: int = setting(256, "LSTM units.", low=1, high=8192, flag=True)
    mixtures: int = setting(5, "Gaussians per latent dimension.", low=1, high=64, flag=True)
    seq_len: int = setting(64, "Steps per training window.", low=2, flag=True)
    batch: int = setting(32, "Windows per batch.", low=1, flag=True)
    clear: float = setting(
        0.4,
        "Over this last share of the steps the noise of the input z fades, because C and dreams give M clear ones; 0: "
        "it stays.",
        low=0,
        high=1,
    )
    end_weight: float = setting(10.0, "Weight of the rare ends of episodes in the end head's loss.", low=1.0)


@dataclass(frozen=True, kw_only=True)
class ControllerSettings(Settings):
    """`wm train-controller`: CMA-ES over a small policy on [mean z, h]."""

    in_: str = setting(
        "real",
        "Where candidates play: real; dream, without touching reality; mixed: in the dream, but validated and kept by "
        "real returns.",
        choices=("real", "dream", "mixed"),
        flag=True,
    )
    mdnrnn: str = setting(
        "trained",
        "The memory C sees beside z: M, M before training, or none (for comparison).",
        choices=("trained", "untrained", "none"),
        flag=True,
    )
    from_: str = setting(
        "", "Run whose controller to go on from, such as runs/Pong; empty: from zero.", flag=True, result=False
    )
    algo: str = setting(
        "cma", "cma has the full covariance matrix, sep-cma its diagonal.", choices=("cma", "sep-cma"), flag=True
    )
    popsize: int = setting(16, "Candidates per generation.", low=4, flag=True)
    max_generations: int = setting(60, "Generations to evolve.", low=1, flag=True)
    max_hours: float = setting(0.0, "End after the generation in which this time is over; 0: never.", low=0, flag=True)
    budget_steps: int = setting(
        0,
        "End after the generation in which so many real steps have been played; 0: never.",
        low=0,
        flag=True,
        added=True,
    )
    target_return: float = setting(
        1e9, "End when a validation of the mean reaches this return.", low=-1e9, high=1e9, flag=True
    )
    episodes_per_eval: int = setting(1, "Episodes each candidate plays per generation.", low=1, flag=True)
    temperature: str = setting(
        "1.0",
        "Temperature of the dream; auto: the one in which a few candidates rank as they do in reality.",
        flag=True,
    )
    head: str = setting(
        "auto",
        "From C's output to an action: argmax, ordered (one output: down, stay, up), tanh (box).",
        choices=("auto", "argmax", "ordered", "tanh"),
    )
    hidden: int = setting(0, "Hidden units of C; 0: linear.", low=0, high=256)
    hidden_gain: float = setting(
        1.0,
        "What the output of the hidden units is multiplied by, so that steps in their weights and in those on z change "
        "what C says alike.",
        low=0.01,
        high=100,
        added=True,
    )
    sees: str = setting(
        "all",
        "What C is given: z and the memory of M, or z alone, which leaves fewer weights to search.",
        choices=("all", "z"),
        added=True,
    )
    sigma: float = setting(0.3, "CMA-ES' initial step size.", low=1e-6)
    starts: int = setting(
        1,
        "Searches that begin one after the other; the one whose mean validates best after its first generations goes "
        "on.",
        low=1,
        high=100,
        added=True,
    )
    start_generations: int = setting(10, "Generations of each start, where there are several.", low=1, added=True)
    max_steps: int = setting(0, "Truncate training episodes after this many steps; 0: full episodes.", low=0)
    render: str = setting(
        "same",
        "Who draws for candidates (never for validations): the same as for V, or fast, where the environment has it.",
        choices=("same", "fast"),
    )
    late_after: int = setting(0, "Generations before the late ones; 0: two thirds of all.", low=0, added=True)
    late_episodes: int = setting(
        1, "In the late generations, how many times as many episodes a candidate plays.", low=1
    )
    late_steps: int = setting(1, "In the late generations, how many times as long training episodes may be.", low=1)
    evened: bool = setting(
        False,
        "Begin with steps that change what C says evenly, by what it is given in the episodes of the last --data "
        "that M learned from; sigma is then a share of the weights it begins with, if there are any.",
        added=True,
    )
    dreams: int = setting(
        0, "Dreams each candidate plays per generation; 0: as many as episodes.", low=0, high=1024, added=True
    )
    dreams_from: str = setting(
        "anywhere",
        "Where dreams begin: anywhere in the episodes that M learned from, or early in those of the last --data.",
        choices=("anywhere", "early"),
        added=True,
    )
    even_after: int = setting(
        0,
        "After this many generations, look at what C is given when the mean plays, and begin anew with steps that "
        "change what it says evenly; 0: never.",
        low=0,
        added=True,
    )
    even_times: int = setting(1, "How many times it does so, each that many generations later.", low=1, added=True)
    even_over: str = setting(
        "all",
        "What the search is over then: all weights, or those on z, while those on M's memory stay zero.",
        choices=("all", "z"),
        added=True,
    )
    validate_every: int = setting(5, "Generations between validations of the distribution's mean.", low=1)
    validation_episodes: int = setting(20, "Full episodes per validation, on seeds of their own.", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        if self.in_ != "real" and self.mdnrnn == "untrained":
            raise UsageProblem(f"--mdnrnn untrained cannot dream; leave out --in {self.in_}, or use --mdnrnn none.")
        if self.sees == "z" and self.mdnrnn == "untrained":
            raise UsageProblem(
                "--mdnrnn untrained is another memory for C, but --set sees=z gives it none; add --set sees=all."
            )
        if self.hidden_gain != 1 and not self.hidden:
            raise UsageProblem(
                f"--set hidden_gain is {self.hidden_gain:g} but C has no hidden units; add --set hidden_gain=1, or "
                "--set hidden=8."
            )
        if self.evened and self.hidden:
            raise UsageProblem(
                f"--set evened=true takes a linear C; --set hidden is {self.hidden}, leave one of them out."
            )
        for name, given in (("--from", self.from_), ("--set even_after", self.even_after)):
            if self.starts > 1 and given:
                raise UsageProblem(
                    f"--set starts={self.starts} begins several searches from zero, of which one goes on; leave out "
                    f"{name}, or add --set starts=1."
                )
        for name, given in (("--in dream", self.in_ == "dream"), ("--from", self.from_), ("--set hidden", self.hidden)):
            if self.even_after and given:
                raise UsageProblem(
                    f"--set even_after={self.even_after} begins anew with a linear C, by what it was given in reality; "
                    f"leave out {name}, or add --set even_after=0."
                )

    @property
    def early(self) -> int:
        """Generations before the late ones."""
        return min(self.late_after or self.max_generations * 2 // 3, self.max_generations)

    @property
    def start_ends(self) -> range:
        """The generations with which a start ends, where there are several."""
        every = self.start_generations
        return range(every, every * self.starts + 1, every) if self.starts > 1 else range(0)

    def evened_after(self, generation: int) -> bool:
        """Whether the search begins anew after this generation."""
        every = self.even_after
        return every > 0 and generation in range(every, every * self.even_times + 1, every)


def check_temperature(text: str) -> None:
    """Raise UsageProblem unless it is `auto` or a number that M can be sampled at."""
    try:
        valid = text == "auto" or 0.01 <= float(text) <= 10.0
    except ValueError:
        valid = False
    if not valid:
        raise UsageProblem(f"--temperature is {text!r}; expected auto or a number from 0.01 to 10.")


@dataclass(frozen=True, kw_only=True)
class DreamSettings(Settings):
    """`wm dream`: M imagines; pictures show it beside reality, and a report how far it can be trusted."""

    agent: str = setting(
        "controller", "Whose dream: the controller's in M, or a Dreamer's.", choices=("controller", "dreamer"),
        flag=True, added=True,
    )  # fmt: skip
    controller: str = setting("controller", "Name of the controller, or of the Dreamer, that dreams.", flag=True)
    temperature: float = setting(
        1.0, "Above 1 the dream is more uncertain, below 1 more certain.", low=0.01, high=10.0, flag=True
    )
    dreams: int = setting(32, "Dreams of every mean that is compared with reality; not of a Dreamer.", low=2, flag=True)
    max_steps: int = setting(500, "Longest dream and longest real episode of the comparison.", low=1, flag=True)
    means: int = setting(32, "Means of the search, equally spaced, that play in the dream and in reality.", low=2)
    real_episodes: int = setting(4, "Real episodes of every mean.", low=2)
    context: int = setting(16, "Real steps M sees before the pictured dream begins.", low=1)
    frames: int = setting(120, "Steps of the animation.", low=2)
    fps: int = setting(15, "Frames per second of the animation.", low=1, high=50)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agent == "dreamer" and self.temperature != 1:
            raise UsageProblem(f"--temperature is {self.temperature:g} but a Dreamer dreams at 1; leave it out.")

    @property
    def who(self) -> str:
        """The name of the artifact that dreams."""
        return "dreamer" if self.agent == "dreamer" and self.controller == "controller" else self.controller


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(Settings):
    """`wm evaluate`: honest scores on test seeds in the unmodified environment."""

    episodes: int = setting(100, "Test episodes; under 100 the score is marked as a preview.", low=2, flag=True)
    agent: str = setting("controller", "Who plays.", choices=("controller", "dreamer", "random"), flag=True)
    controller: str = setting("controller", "Name of the controller, or of the Dreamer, that plays.", flag=True)
    record_video: int = setting(
        0, "Film the first N test episodes: GIF, and MP4 where imageio is installed.", low=0, flag=True, result=False
    )
    visualize: bool = setting(False, "Show the first test episode in a window.", flag=True, result=False)

    @property
    def who(self) -> str:
        """The name of the artifact that plays."""
        named = self.controller != "controller"
        return self.agent if self.agent == "random" or (self.agent == "dreamer" and not named) else self.controller


@dataclass(frozen=True, kw_only=True)
class DreamerSettings(Settings):
    """`wm train-dreamer`: a recurrent state-space model with actor and critic, learned while it plays."""

    steps: int = setting(100_000, "Environment steps to play; 0: learn from --data alone.", low=0, flag=True)
    num_envs: int = setting(2, "Environments played side by side.", low=1, high=64, flag=True)
    capacity: int = setting(50_000, "Steps that the replay holds, in memory and on disk.", low=64, flag=True)
    warmup: int = setting(
        1024,
        "Environment steps until actor and critic learn too, not the world model alone.",
        low=0,
        flag=True,
    )
    train_ratio: float = setting(32.0, "Replayed steps per environment step.", low=0, flag=True)
    pretrain: int = setting(2000, "With --data: updates of the world model on it before the play.", low=1, flag=True)
    prefill: int = setting(256, "Environment steps before the first update.", low=1)
    target_return: float = setting(
        1e9,
        "End when the last 100 training episodes return this on average, and then a validation.",
        low=-1e9,
        high=1e9,
        flag=True,
    )
    validation_episodes: int = setting(20, "Full episodes of that validation, on seeds of their own.", low=2)
    batch: int = setting(8, "Windows per update.", low=1, flag=True)
    seq_len: int = setting(32, "Steps per window.", low=2, flag=True)
    horizon: int = setting(15, "Steps imagined from every state.", low=1)
    starts: int = setting(8, "Last states of a window that imagination starts from; 0: all.", low=0)
    decoded: float = setting(0.25, "Share of the frames that the decoder draws in an update.", low=0.01, high=1)
    pixels: float = setting(
        1000.0, "Nats that always showing the mean picture would cost; 0: the plain summed squared error.", low=0
    )
    rarity: float = setting(
        0.5, "How much more rare colours at a place weigh (an exponent); 0: all alike.", low=0, high=2
    )
    entropy: float = setting(3e-4, "Weight of the actor's entropy.", low=0)
    world_rate: float = setting(1e-3, "Adam's step size for the world model.", low=1e-8, high=1)
    behaviour_rate: float = setting(3e-4, "Adam's step size for actor and critic.", low=1e-8, high=1)
    precision: str = setting(
        "auto",
        "Number format of matrix products: auto is bf16 where the device has instructions for it, else fp32.",
        choices=("auto", "fp32", "bf16"),
        flag=True,
    )
    size: int = setting(64, "Side of the square frames in pixels.", choices=(32, 64, 84, 96, 128))
    gray: bool = setting(True, "See one gray channel instead of three colours.")
    stack: int = setting(1, "Newest frames that are seen at once.", low=1, high=8)
    encoder: str = setting("conv", "conv halves frames; nature is Mnih's, for 84 pixels.", choices=("conv", "nature"))
    deter: int = setting(256, "Numbers that the GRU carries on.", low=8)
    hidden: int = setting(128, "Units between the parts of the recurrent model.", low=8)
    stoch: int = setting(32, "Latents.", low=1)
    classes: int = setting(16, "Categories of each latent; 0: Gaussian ones.", low=0)
    depth: int = setting(16, "Channels of the first convolution.", low=2)
    units: int = setting(128, "Units of a head's layers.", low=8)
    layers: int = setting(2, "Layers of a head.", low=1, high=8)
    bins: int = setting(63, "Bins of reward and value; odd.", low=3, high=511)
    part_rows: int = setting(4096, "Steps between checkpoints; each writes a part of the replay.", low=16, result=False)
    log_every: int = setting(500, "Environment steps between lines of metrics.jsonl.", low=1, result=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.size == 84) != (self.encoder == "nature"):
            raise UsageProblem(
                f"size is {self.size} and encoder {self.encoder!r}; nature is for 84 pixels, conv for the other sizes."
            )
        if self.bins % 2 == 0:
            raise UsageProblem(f"bins is {self.bins}; expected an odd number, so that one of them is 0.")
        if self.capacity < self.num_envs * self.seq_len:
            raise UsageProblem(
                f"--capacity is {self.capacity}; expected at least a window of {self.seq_len} steps for each of "
                f"{self.num_envs} environments."
            )


@dataclass(frozen=True, kw_only=True)
class CurriculumSettings(Settings):
    """`wm curriculum`: the whole chain, one environment after the other."""

    name: str = setting(
        "full", f"Which environments: {' or '.join(CURRICULA)}.", choices=tuple(CURRICULA), flag=True, result=False
    )
    envs: str = setting("", "Environments, separated by commas, instead of a named list.", flag=True, result=False)
    agent: str = setting(
        "vmc", "Who learns: vmc is V, M and C; dreamer a Dreamer.", choices=("vmc", "dreamer"), flag=True, result=False
    )
    rounds: int = setting(
        0,
        "In each round after the first, collect with the controller, train M on all episodes, and evolve C on; 0: as "
        "often as the preset says for the environment, or once.",
        low=0,
        high=9,
        flag=True,
        result=False,
    )
    later_vae: str = setting(
        "auto",
        "V in each round after the first: keep it, or train it on, on all episodes, and carry C over to what it sees "
        "then; auto: as the preset says for the environment, or keep.",
        choices=("auto", "keep", "train"),
        flag=True,
        result=False,
    )
    max_generations: int = setting(
        0, "End an environment's search after so many generations; 0: the preset's.", low=0, flag=True, result=False
    )
    max_hours: float = setting(
        0.0, "End an environment's search after this time; 0: the preset's.", low=0, flag=True, result=False
    )
    max_steps: int = setting(
        0, "End an environment's search after so many real steps; 0: the preset's.", low=0, flag=True, result=False
    )
    keep: str = setting(
        "all",
        "What stays of an environment that is finished: data (latents go), artifacts (episodes and latents go), all.",
        choices=("data", "artifacts", "all"),
        flag=True,
        result=False,
    )
    warm_start: bool = setting(
        False,
        "V and M go on from the environment before, where shapes match.",
        flag=True,
        result=False,
        off="--from-scratch",
    )
    jobs: int = setting(
        1, "Environments at a time; they share the cores, and none starts warm.", low=1, high=8, flag=True, result=False
    )
    strict: bool = setting(False, "Stop at the first environment that fails.", flag=True, result=False)
    probe: bool = setting(True, "Tell first what it will take, and refuse what does not fit.", flag=True, result=False)
    report: bool = setting(True, "Write a page about all of them at the end.", flag=True, result=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs > 1 and self.warm_start:
            raise UsageProblem(f"--jobs {self.jobs} and --warm-start exclude each other; leave one of them out.")
        vmc_only = {
            "--rounds": self.rounds > 1,
            "--later-vae": self.later_vae != "auto",
            "--warm-start": self.warm_start,
            "--max-generations": self.max_generations > 0,
            "--max-hours": self.max_hours > 0,
        }
        if self.agent == "dreamer" and any(vmc_only.values()):
            given = next(name for name, there in vmc_only.items() if there)
            raise UsageProblem(f"{given} is for V, M and C; a Dreamer has --max-steps. Leave one of them out.")


COMMANDS: dict[str, type[Settings]] = {
    "collect": CollectSettings,
    "train-vae": VaeSettings,
    "train-mdnrnn": MdnRnnSettings,
    "train-controller": ControllerSettings,
    "dream": DreamSettings,
    "evaluate": EvaluateSettings,
    "train-dreamer": DreamerSettings,
    "curriculum": CurriculumSettings,
}
