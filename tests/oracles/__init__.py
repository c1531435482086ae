"""Right values by somebody else's code, or by the plainest code there is, on generated inputs."""
