"""Samplers: which configuration a study tries next, given its earlier trials.

Optuna's samplers and a Sobol sequence, all behind `SamplerFactory.make_sampler`.
"""
