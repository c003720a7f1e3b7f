"""The figures of the three papers, measured again in the simulator: `ordercast figures amoeba`, `rmp` and `tompa`."""
