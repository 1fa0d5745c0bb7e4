"""`wm report`: what there is to see of runs, as one HTML page and as Markdown."""

from pathlib import Path

from wm.artifacts import durable
from wm.errors import MissingInput
from wm.report.document import Block, Paragraph, to_html, to_markdown
from wm.report.run_summary import RunSummary, overview

ARTIFACTS = ("vae", "mdnrnn", "controller", "dream", "dreamer", "evaluation")


def found_runs(paths: tuple[Path, ...]) -> list[Path]:
    """The runs among the paths or right below them, in order. Raises MissingInput if there is none."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(folder for folder in path.iterdir() if folder.is_dir()) if path.is_dir() else []
        found += [path] if _is_run(path) else [folder for folder in inside if _is_run(folder)]
    if not found:
        named = ", ".join(map(str, paths))
        raise MissingInput(
            f"there is no run in {named}; expected a folder such as runs/Pong. Make one: `wm curriculum`."
        )
    return list(dict.fromkeys(found))


def _is_run(path: Path) -> bool:
    return any((path / f"{name}{end}").is_dir() for name in ARTIFACTS for end in ("", ".partial"))


def report(paths: tuple[Path, ...], out: Path | None) -> tuple[Path, Path]:
    """Write the page and the Markdown beside it; returns both paths."""
    folders = found_runs(paths)
    chapters = [RunSummary.of(folder) for folder in folders]
    page = out or (folders[0] if len(folders) == 1 else folders[0].parent) / "report.html"
    title = f"World models: {', '.join(chapter.title for chapter in chapters)}"
    blocks: list[Block] = [overview(chapters), Paragraph(_LEGEND)]
    for chapter in chapters:
        blocks += chapter.blocks()
    durable.make_folder(page.parent)
    durable.write_bytes(page, to_html(title, blocks, page.parent))
    summary = page.with_suffix(".md")
    durable.write_bytes(summary, to_markdown(title, blocks, page.parent))
    return page, summary


_LEGEND = (
    "Scores: mean return on test episodes and the half-width of its 95 % interval. V reads: what a linear probe tells "
    "from a sampled z on held-out episodes, worst and best label. M / persistence: error 15 steps ahead beside that of "
    "saying that nothing changes. Dream ranks: rank correlation of return in the dream and in reality."
)
