"""Episodes as a Zarr dataset of immutable parts: schema, writer, reader, batches, latents."""
