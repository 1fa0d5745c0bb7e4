"""How zarr-python encodes the chunks of a shard: one after the other, in the thread that asks.

zarr-python's own pipeline sends each chunk through about twenty asyncio callbacks and a thread, and copies it into
memory that it filled before. That took up to half of the time of writing a part.

Importing this module imports zarr, which takes 0.3 s and 46 MB: only a process that writes does so.
"""

from collections.abc import Iterable
from typing import Any, cast

from zarr.abc.codec import SupportsSyncCodec
from zarr.abc.store import ByteSetter
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import NDBuffer
from zarr.core.codec_pipeline import BatchedCodecPipeline


class WholeChunkShards(ShardingCodec):
    """A shard whose chunks are written once each. Its metadata are those of any shard."""

    @property
    def codec_pipeline(self) -> "WholeChunks":
        """What encodes its chunks. zarr-python would take the class from a setting that all threads share."""
        return WholeChunks.from_codecs(self.codecs)


class WholeChunks(BatchedCodecPipeline):
    """Encodes chunks that are written once each; one that gets fewer rows than it has is filled up with zeros."""

    async def write(
        self,
        batch_info: Iterable[tuple[ByteSetter, ArraySpec, Any, Any, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        """Encode and set each chunk of `batch_info`: where to, its spec, its place in the chunk and in `value`."""
        codecs = cast(list[SupportsSyncCodec], [self.array_bytes_codec, *self.bytes_bytes_codecs])
        for setter, spec, place, source, _ in batch_info:
            chunk: Any = value[source]
            if chunk.shape != spec.shape:
                chunk = spec.prototype.nd_buffer.create(shape=spec.shape, dtype=value.dtype, fill_value=0)
                chunk[place] = value[source]
            for codec in codecs:
                chunk = codec._encode_sync(chunk, spec)
            await setter.set(chunk)
