"""What is wrong with a data set: one module per format, each reading leniently what its reader reads strictly."""
