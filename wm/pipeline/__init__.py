"""The stages that make V, M and C: from their inputs to a published artifact. The commands and `wm.train_vae` and its
like call them; what a command only plans or prints is in `stages`."""
