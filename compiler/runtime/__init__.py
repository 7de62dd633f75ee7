"""What runs an artifact: loads it, calls it once a step, samples. Needs numpy and the artifact, nothing else."""
