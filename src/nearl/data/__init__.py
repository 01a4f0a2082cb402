"""Files that come with the package: the trained metric of CartPole's pictures."""
