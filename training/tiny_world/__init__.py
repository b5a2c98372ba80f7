"""The built-in world: arithmetic problems and a small model warm-started on them."""
