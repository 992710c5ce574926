"""Cost models that read schedules, and how they are stored on disk."""

from tensorese.models.base import (
    Card,
    Model,
    ModelError,
    kinds,
    load_model,
    register,
    save_model,
)

__all__ = ["Card", "Model", "ModelError", "kinds", "load_model", "register", "save_model"]
