"""Detection datasets as they really are, augmented reproducibly."""
