"""Dreamer: a recurrent state-space model of the environment, and an actor and a critic trained in its imagination.

Hafner et al., "Mastering diverse domains through world models" (DreamerV3, 2023). Read `world_model`, then
`actor_critic`. Taken from it: categorical latents with 1 % unimix, symlog two-hot reward and value, free bits and
balanced KL, returns scaled by their 5-95 % range, REINFORCE with entropy, a slow critic as regulariser. Each module
states what differs. Modules are pure: noise comes from a generator argument, and recurrent state is a value that is
passed in and returned, so that no graph outlives a call.
"""
