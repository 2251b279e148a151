"""What programs import from ``triton_dist.autotuner``: served by disttune-triton-dist, takeover."""

from __future__ import annotations

from ._contextual import ContextualAutoTuner, contextual_autotune

__all__ = ["ContextualAutoTuner", "contextual_autotune"]
