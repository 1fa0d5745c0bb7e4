"""Runs in sheeprl's own virtual environment: its command line, unpatched but for a clock around `train`. It takes a
gradient step for every line on stdin, and prints a line with the seconds."""

import sys
import time

import torch
from sheeprl.algos.dreamer_v3 import dreamer_v3
from sheeprl.cli import run

torch.set_num_threads(1)
train = dreamer_v3.train


def timed(fabric, world_model, *arguments):  # type: ignore[no-untyped-def]
    if not sys.stdin.readline():
        raise SystemExit(0)
    began = time.perf_counter()
    train(fabric, world_model, *arguments)
    parameters = sum(parameter.numel() for parameter in world_model.parameters())
    print(f"STEP {time.perf_counter() - began:.4f} {parameters}", flush=True)


dreamer_v3.train = timed
sizes = ["recurrent_model.recurrent_state_size", "transition_model.hidden_size", "representation_model.hidden_size"]
sys.argv = [
    "sheeprl", "exp=dreamer_v3", "algo=dreamer_v3_XS", "env=dummy", "env.id=discrete_dummy", "env.num_envs=1",
    "env.sync_env=True", "env.capture_video=False", "env.screen_size=64", "fabric.accelerator=cpu",
    "fabric.devices=1", f"fabric.precision={sys.argv[1]}", "algo.cnn_keys.encoder=[rgb]", "algo.cnn_keys.decoder=[rgb]",
    "algo.mlp_keys.encoder=[]", "algo.mlp_keys.decoder=[]", "algo.learning_starts=200", "algo.replay_ratio=1",
    "algo.per_rank_batch_size=16", "algo.per_rank_sequence_length=50", "algo.dense_units=200", "algo.mlp_layers=1",
    "algo.total_steps=100000", "algo.run_test=False", "algo.world_model.encoder.cnn_channels_multiplier=24",
    "buffer.size=4000", "buffer.memmap=False", "buffer.checkpoint=False", "metric.log_level=0", "checkpoint.every=0",
    "checkpoint.save_last=False", *(f"algo.world_model.{size}=200" for size in sizes),
]  # fmt: skip
run()
