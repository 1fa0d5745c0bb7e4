"""The processes that `torchrun` has started for one training, and what they tell each other.

The first one leads: it validates, logs, saves and publishes, and the others do what it says (`wm/training/orders.py`).
Tensors go by torch.distributed, everything else through the store that torchrun keeps, which outlives any of them.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from wm.errors import RankFailed, UsageProblem

if TYPE_CHECKING:
    from torch import Tensor

POLL_SECONDS = 0.05  # between looks at the store: the store's own wait logs every one that ends without an answer
TRAIN, FINISHED = "train", "finished"  # words of the first process about an artifact
PIECES = 8  # of a batch, unless the settings say otherwise: for 1, 2, 4 or 8 processes


class PartDone(Exception):
    """The part of this process is done: the first one alone measures and publishes what was trained."""


def is_rank(environ: Mapping[str, str]) -> bool:
    """Whether these are the variables of a process that torchrun has started."""
    return "TORCHELASTIC_RUN_ID" in environ


def is_first(environ: Mapping[str, str]) -> bool:
    """Whether these are the variables of the process that prints: any but one that torchrun started beside it."""
    return not is_rank(environ) or environ.get("RANK", "0") == "0"


def open_ranks(
    environ: Mapping[str, str], device: str, timeout: float, raise_if_stopped: Callable[[], None], version: str
) -> "Ranks":
    """Meet the other processes of torchrun; `environ` has its variables. One that does not answer for `timeout` seconds
    has failed. `version` is that of the program, which must be the same in all.

    Each takes as many threads as OMP_NUM_THREADS says, one without it: sums depend on their number too. On CUDA each
    takes a GPU of its own. Raises UsageProblem for too few GPUs, and where machines or packages differ.
    """
    import torch
    from torch import distributed
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    threads = environ.get("OMP_NUM_THREADS", "")
    torch.set_num_threads(int(threads) if threads.isascii() and threads.isdecimal() and int(threads) else 1)
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    local = int(environ["LOCAL_RANK"])
    if cuda and local >= torch.cuda.device_count():
        raise UsageProblem(
            f"torchrun has started {environ['LOCAL_WORLD_SIZE']} processes here but there are "
            f"{torch.cuda.device_count()} GPUs; start one for each, or give --device cpu."
        )
    if device == "mps":
        raise UsageProblem("--device is mps under torchrun; expected cpu or cuda.")
    if cuda:
        torch.cuda.set_device(local)
    with _as_failure(timeout):
        store, number, count = next(rendezvous("env://"))
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        group = PrefixStore("group", store)
        distributed.init_process_group(
            backend, store=group, rank=number, world_size=count, timeout=timedelta(seconds=timeout)
        )
    ranks = Ranks(PrefixStore("wm", store), number, count, timeout, raise_if_stopped)
    bf16 = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
    kind = f"wm {version}, torch {torch.__version__}, {'cuda' if cuda else 'cpu'}, {torch.get_num_threads()} threads, "
    ranks.compare("machines or packages", f"{kind}{torch.backends.cpu.get_cpu_capability()}{' with bf16' * bf16}")
    return ranks


@contextmanager
def _as_failure(timeout: float) -> Iterator[None]:
    """Raise RankFailed for what torch.distributed raises: another process is gone, or late."""
    try:
        yield
    except RuntimeError as error:
        raise RankFailed(
            f"a process of torchrun has ended, or not answered for {timeout:g} s; the same command resumes from the "
            f"last checkpoint, with any number of processes ({str(error).strip().splitlines()[0][:80]})."
        ) from None


class Ranks:
    """Process `number` (from 0) of `count`. All methods raise RankFailed where another process has ended or is late."""

    def __init__(
        self, store: Any, number: int, count: int, timeout: float, raise_if_stopped: Callable[[], None]
    ) -> None:
        self.number, self.count = number, count
        self._store, self._timeout, self._raise_if_stopped = store, timeout, raise_if_stopped
        self._compared = self._words = 0

    @property
    def leads(self) -> bool:
        """Whether this is the first process."""
        return self.number == 0

    def compare(self, what: str, text: str) -> None:
        """Raise UsageProblem in a process whose text is not that of the first."""
        self._compared += 1
        key = f"compare {self._compared}"
        if self.leads:
            self._set(key, text)
        elif (first := self._wait(key)) != text:
            raise UsageProblem(
                f"process {self.number} of torchrun has other {what} ({text}) than process 0 ({first}); start all with "
                "the same command and the same data, on machines of one kind."
            )

    def tell(self, word: str) -> None:
        """Say a word to the others, who `hear` it."""
        self._words += 1
        self._set(f"word {self._words}", word)

    def hear(self) -> str:
        """The next word of the first process, however long it takes. Raises Stopped after a signal."""
        self._words += 1
        return self._wait(f"word {self._words}")

    def meet(self) -> None:
        """Wait for all, however long they take. Raises Stopped after a signal."""
        if not self.leads:
            self._set(f"here {self._words} {self.number}", "")
            self._wait(f"all here {self._words}")
            return
        for number in range(1, self.count):
            self._wait(f"here {self._words} {number}")
        self._set(f"all here {self._words}", "")

    def is_first_to_say(self) -> bool:
        """Whether no other process has said why all of them end."""
        try:
            said: bytes = self._store.compare_set("said", "", str(self.number))
        except RuntimeError:  # the store is gone, and with it the process that kept it
            return self.leads
        return said == str(self.number).encode()

    def _set(self, key: str, text: str) -> None:
        with _as_failure(self._timeout):
            self._store.set(key, text)

    def _wait(self, key: str) -> str:
        with _as_failure(self._timeout):
            while not self._store.check([key]):
                self._raise_if_stopped()
                threading.Event().wait(POLL_SECONDS)
            value: bytes = self._store.get(key)
        return value.decode()

    def sum(self, values: list[int]) -> list[int]:
        """The sums of these numbers over all processes."""
        import torch
        from torch import distributed

        tensor = torch.tensor(values)
        with _as_failure(self._timeout):
            distributed.all_reduce(tensor)
        return tensor.tolist()

    def send(self, data: bytes = b"") -> bytes:
        """The `data` of the first process, in all."""
        import numpy as np
        import torch
        from torch import distributed

        buffer = torch.empty(self.sum([len(data) if self.leads else 0])[0], dtype=torch.uint8)
        if self.leads:
            buffer.numpy()[:] = np.frombuffer(data, np.uint8)
        with _as_failure(self._timeout):
            distributed.broadcast(buffer, 0)
        return buffer.numpy().tobytes()

    def add(self, rows: "Tensor") -> "Tensor":
        """Add rows (K, N) of all processes, K each, in their order: those of process 0, then those of process 1. The
        sum (N,) is in all of them the same to the bit.

        Each process adds one part of the columns of all rows. So it sends and receives little more than K N numbers;
        all rows to all would be `count` times that.
        """
        import torch
        from torch import distributed
        from torch.nn import functional

        columns = -(-rows.shape[1] // self.count)
        padded = functional.pad(rows, (0, columns * self.count - rows.shape[1]))
        parts = padded.view(len(rows), self.count, columns).transpose(0, 1).contiguous()
        received = torch.empty_like(parts)
        total = parts.new_empty(self.count * columns)
        with _as_failure(self._timeout):
            distributed.all_to_all_single(received, parts)
            distributed.all_gather(list(total.split(columns)), added(received.flatten(0, 1)))
        return total[: rows.shape[1]]

    def close(self) -> None:
        """Part from the others."""
        from torch import distributed

        distributed.destroy_process_group()


def added(rows: "Tensor") -> "Tensor":
    """The sum (N,) of rows (K, N), in their order."""
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total
