"""Starting weights: packaged, from a folder or a hub, and the gate they must pass."""
