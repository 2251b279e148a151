"""Contextual tuning under its familiar name; see `disttune.contextual_autotune`."""

from disttune._triton_dist_autotuner import ContextualAutoTuner, contextual_autotune

__all__ = ["ContextualAutoTuner", "contextual_autotune"]
