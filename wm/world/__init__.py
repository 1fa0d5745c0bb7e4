"""The Python API: a trained run as one object. `import wm` offers its names and imports it when one is used.

Importing this package registers `wm/Dream-v0` and `wm/Real-v0` with gymnasium. It imports no torch.
"""

import gymnasium as gym

_VECTOR = {"wm/Dream-v0": "wm.world.gymnasium_ids:make_dreams"}

for _name, _maker in (("wm/Dream-v0", "make_dream"), ("wm/Real-v0", "make_real")):
    if _name not in gym.registry:
        gym.register(
            _name,
            f"wm.world.gymnasium_ids:{_maker}",
            vector_entry_point=_VECTOR.get(_name),
            # Both check their input themselves, and gymnasium's checks take longer than a step of a dream.
            disable_env_checker=True,
            order_enforce=False,
        )
