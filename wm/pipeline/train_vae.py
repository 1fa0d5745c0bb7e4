"""Episodes -> V."""

from typing import Any

from wm.artifacts.runs import Artifact, Builder, Run
from wm.envs.registry import EnvConfig
from wm.episodes.archive import collecting_seconds
from wm.episodes.dataset import Dataset
from wm.episodes.mixture import batch_sizes, fingerprints, open_datasets
from wm.evaluation.linear_probe import ProbeResult, probe_vae, summarize_probe
from wm.models.vae.config import VaeConfig
from wm.pipeline.session import Session, stage_name
from wm.pipeline.stage import RESTORED, UP_TO_DATE, Result, run_stage
from wm.pretrained import save_vae
from wm.report.training_pictures import save_vae_pictures
from wm.settings import VaeSettings
from wm.training.cost import publishing_bytes, weight_bytes
from wm.training.device import device_name, pick_device
from wm.training.fit import pick_precision
from wm.training.vae import cache_bytes, fit_vae, mean_image_error, new_vae, open_vae_data, reconstruct
from wm.training.warm_start import load_initial_weights, source_fingerprint

# Raised by each change after which the same settings give another V.
RECIPE = 4


def open_inputs(session: Session, settings: VaeSettings) -> list[Dataset]:
    """The datasets. Raises UsageProblem for a mixture or a batch that does not fit them."""
    datasets = open_datasets(session.env, session.data_paths, settings.episodes)
    batch_sizes(settings.batch, settings.mixture, datasets)
    return datasets


def vae_run(session: Session, settings: VaeSettings, datasets: list[Dataset]) -> Run:
    """The place of V in a run, for these datasets."""
    inputs = fingerprints(datasets) | source_fingerprint(settings.init_from, "vae", session.env)
    name = stage_name(session, "vae", settings.init_from)
    return session.make_run(name, "vae", RECIPE, settings.result_settings(), inputs)


def train_vae(session: Session, settings: VaeSettings) -> Result:
    """Train V on the episodes and publish the best weights by validation loss, with a strip of reconstructions."""
    datasets = open_inputs(session, settings)
    env, shape = EnvConfig.of_recipe(datasets[0].recipe), datasets[0].frame_shape

    def work(builder: Builder) -> dict[str, Any]:
        device, runtime = pick_device(session.device), session.runtime
        data = open_vae_data(
            datasets,
            session.seed,
            device,
            batch=settings.batch,
            mixture=settings.mixture,
            validation_share=settings.validation_share,
            ram=cache_bytes(settings.ram),
        )
        model = new_vae(settings.network, settings.latent, shape, session.seed).to(device)
        model.fit_normalization(data.sample)
        load_initial_weights(settings.init_from, "vae", session.env, model)
        precision = pick_precision(settings.precision, device, model, tf32=settings.tf32)
        label = f"train-vae {session.env}"
        scores = fit_vae(runtime, builder.folder, label, settings, data, model, session.seed, precision)
        mean_error = mean_image_error(data.validation)
        if scores["validation_error"] >= mean_error:
            runtime.log(
                f"warning: V's pictures are no better than the mean image ({scores['validation_error']:.1f}, mean "
                f"image {mean_error:.1f}); train it longer (--steps), or on more episodes."
            )
        model.cpu()
        # With the same seed: a probe of untrained weights tells what random features show.
        untrained = new_vae(settings.network, settings.latent, shape, session.seed)
        untrained.fit_normalization(data.sample.cpu())
        probe = probe_vae(datasets[0], data.mask, model, untrained, session.seed)
        metrics = {
            **scores,
            "mean_image_error": mean_error,
            "images_per_second": round(scores["steps_per_second"] * settings.batch * settings.accumulate, 1),
            "precision": precision.name,
            "trained_on": device_name(device),
            "episodes": datasets[0].upto,
            "collecting_seconds": sum(collecting_seconds(dataset.path) for dataset in datasets),
            "rows": sum(dataset.rows for dataset in datasets),
            "collected_steps": sum(dataset.env_steps for dataset in datasets),
            # Four bytes a parameter.
            "parameters": weight_bytes(model) // 4,
            "probe": {name: result.as_json() for name, result in probe.items()},
            "probe_summary": summarize_probe(probe, env, settings.require_probe, runtime.log),
        }
        config = VaeConfig(settings.network, model.size, model.channels, model.latent, env.as_json())
        save_vae(builder.folder, config, model)
        reconstructions = reconstruct(model, data.validation)
        save_vae_pictures(runtime, builder.folder, session.env, settings.steps, data.validation, reconstructions)
        return metrics

    need = publishing_bytes(new_vae(settings.network, settings.latent, shape, session.seed)), "training V"
    result = run_stage(session, "train-vae", vae_run(session, settings, datasets), need, _summary, work, env)
    if settings.require_probe and result.status in (UP_TO_DATE, RESTORED):  # trained when less was required
        probe = {name: ProbeResult.from_json(each) for name, each in (result.metrics.get("probe") or {}).items()}
        summarize_probe(probe, env, settings.require_probe, session.runtime.log)
    return result


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    text = (
        f"squared error {metrics['validation_error']:.1f} a frame on held-out episodes (the mean image alone: "
        f"{metrics['mean_image_error']:.1f}), KL {metrics['validation_kl']:.1f} nats, best at step "
        f"{metrics['best_step']}"
    )
    return text + (f"; {metrics['probe_summary']}" if metrics["probe_summary"] else "")
