"""Dreamer: a recurrent state-space model of the world, and an actor and a critic that learn inside it.

Hafner et al., "Mastering diverse domains through world models" (DreamerV3, 2023). Read `world` and then `behaviour`.
What is kept of it: categorical latents with 1 % unimix, symlog two-hot reward and value, free bits and balanced KL,
returns scaled by their 5-95 % range, REINFORCE with entropy, a slow critic as regulariser. What differs is said where
it does. Randomness comes from a generator that is passed in, state is a value that is passed on: nothing is kept.
"""
