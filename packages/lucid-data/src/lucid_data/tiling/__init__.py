"""Large pictures cut into tiles: windows, what they leave of each label, and the tile set with its manifest."""
