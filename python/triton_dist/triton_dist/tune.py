"""Function-level tuning under its familiar name; see `disttune.autotune`."""

from disttune._triton_dist_tune import (
    AutoTuner,
    autotune,
    load_autotune_data,
    pretty_triton_config_repr,
    to_hashable,
)

__all__ = [
    "AutoTuner",
    "autotune",
    "load_autotune_data",
    "pretty_triton_config_repr",
    "to_hashable",
]
