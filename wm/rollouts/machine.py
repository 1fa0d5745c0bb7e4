"""What two machines must have in common to play and store the same: packages, the sources of wm, the kind of CPU."""

import hashlib
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import wm

# The last two compress what is stored.
# Packages that draw, simulate, compute or compress: another version may give other bytes.
PACKAGES = ("numpy", "torch", "gymnasium", "ale-py", "box2d", "pygame", "pygame-ce", "zarr", "numcodecs")
CPU = "CPU"
# By these torch, oneDNN, MKL and OpenBLAS choose their routines, and with them the last bits of a sum: with AVX2 in
# place of AVX-512, z differed by up to 7e-6.
_INSTRUCTIONS = re.compile(r"avx\w*|fma\w*|amx\w*|sve\w*|bf16|i8mm|asimd(?:dp|hp|fhm)?")
_CHOICES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR",
            "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")  # fmt: skip
_INFO = Path("/proc/cpuinfo")


def describe_machine() -> dict[str, str]:
    """Versions by package, and the kind of CPU."""
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {name: _version(name) for name in PACKAGES}
    return {"python": python, **versions, "wm": f"{wm.__version__} ({sources_digest()})", CPU: _cpu()}


def differences(expected: dict[str, str], actual: dict[str, str]) -> list[str]:
    """What differs, such as `torch is 2.10.0 and not 2.13.0`. Of CPUs only what one of both has is named."""
    pairs = {name: (actual.get(name, "unknown"), value) for name, value in expected.items()}
    texts = [f"{name} is {theirs} and not {ours}" for name, (theirs, ours) in pairs.items() if theirs != ours != ""]
    return [text if not text.startswith(f"{CPU} ") else f"{CPU} {_cpu_difference(*pairs[CPU])}" for text in texts]


def _cpu_difference(theirs: str, ours: str) -> str:
    missing, more = (
        " ".join(sorted(set(one.split()) - set(other.split()))) for one, other in ((ours, theirs), (theirs, ours))
    )
    return ", ".join(text for text in (missing and f"lacks {missing}", more and f"has {more}") if text)


def sources_digest() -> str:
    """Of the sources of wm: eight hexadecimal digits."""
    folder = Path(__file__).resolve().parent.parent
    whole = hashlib.sha256()
    # Sorted, for rglob has the order of the disk. Zero bytes keep a name apart from the text before it.
    for path in sorted(folder.rglob("*.py")):
        whole.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:8]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # Compared like a version, so a package that only one machine has is noticed.
        return "missing"


def _cpu() -> str:
    """Architecture, maker and instructions of the CPU, and the variables that keep libraries from using them all."""
    try:
        lines: dict[str, str] = dict(re.findall(r"^(\w+)\s*: (.*)$", _INFO.read_text(), re.M))
    except OSError:
        # No Linux: there the name of the processor stands for its instructions.
        lines = {"vendor_id": platform.processor()}
    words = lines.get("flags", lines.get("Features", "")).split()
    instructions = sorted(word for word in words if _INSTRUCTIONS.fullmatch(word))
    chosen = [f"{name}={os.environ[name]}" for name in _CHOICES if name in os.environ]
    return " ".join([platform.machine(), lines.get("vendor_id", ""), *instructions, *chosen])
